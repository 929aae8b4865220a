//! The proxy's admin port, as far as the bench needs it.

use crate::client::exchange;
use crate::target::Target;
use everwarm_gpu::Monotonic;
use everwarm_units::Span;
use http::Method;

/// How long the admin port may take.
const PATIENCE: Span = Span::s(5);

/// A proxy's admin port.
pub(crate) struct Admin {
    base: Target,
}

impl Admin {
    pub(crate) fn new(base: Target) -> Self {
        Admin { base }
    }

    /// Has the proxy follow another policy.
    pub(crate) async fn policy(&self, name: &str) -> Result<(), String> {
        let body = serde_json::json!({ "policy": name }).to_string();
        self.call(Method::PUT, "/policy", body).await.map(drop)
    }

    /// Tells the proxy that a request is coming.
    pub(crate) async fn hint(&self, expected: Span) -> Result<(), String> {
        let body = serde_json::json!({ "source": "key-stroke", "expected_ms": expected.as_ms() });
        self.call(Method::POST, "/hint", body.to_string()).await.map(drop)
    }

    /// What makes pre-warm conditions something else than their names say; `None` if nothing does.
    pub(crate) async fn remark(&self) -> Result<Option<String>, String> {
        let status = self.call(Method::GET, "/status", String::new()).await?;
        let never = status.get("last_prewarm").is_some_and(serde_json::Value::is_null);
        if let Some(why) = status["warm"]["why"].as_str().filter(|_| never) {
            return Ok(Some(format!(
                "The proxy warmed nothing ({why}): its pre-warm rows are as cold as idle."
            )));
        }
        let hold_for = status["hold_for_s"].as_f64().filter(|span| *span > 0.0);
        Ok(hold_for.map(|span| {
            format!(
                "The proxy stays warm for {span} s after a request, which its pre-warm rows show, \
                 too; start it with\n`--hold-for \"0 s\"` to see pre-warms alone."
            )
        }))
    }

    /// When the latest pre-warm was submitted and when the GPU began it.
    pub(crate) async fn last_prewarm(&self) -> Result<Option<Prewarm>, String> {
        let status = self.call(Method::GET, "/status", String::new()).await?;
        let last = &status["last_prewarm"];
        let stamp = |name: &str| last[name].as_u64().map(Monotonic);
        Ok(stamp("submitted_ns")
            .map(|submitted| Prewarm { submitted, gpu_start: stamp("gpu_start_ns") }))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<serde_json::Value, String> {
        let prefix = self.base.path.trim_end_matches('/');
        let target = self.base.with_path(&format!("{prefix}{path}"));
        let bytes = exchange(method, &target, body, PATIENCE).await?;
        if bytes.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        // What is only an acknowledgement may be any text.
        Ok(serde_json::from_slice(&bytes).unwrap_or(serde_json::Value::Null))
    }
}

/// A pre-warm kernel of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prewarm {
    /// When it was committed.
    pub submitted: Monotonic,
    /// When the GPU began it.
    pub gpu_start: Option<Monotonic>,
}
