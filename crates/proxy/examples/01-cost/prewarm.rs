//! From an accepted connection to the pre-warm that was submitted for it, beside a bare wake-up.
//!
//! The proxy stamps both itself: `/status` has them. The bare wake-up does the same with nothing in
//! between: a thread that was woken by a socket sends its stamp over a channel, and a thread that
//! sleeps on the channel takes its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use everwarm_gpu::Monotonic;

use crate::client::{Connection, Samples, status};
use crate::peers::{Placement, Running, Setting, everwarm};
use crate::upstream::Clock;

/// After a request nothing is warmed for 100 ms, so that is how often one can look.
const GRACE: Duration = Duration::from_millis(105);
/// Wake-ups in that time.
const WAKES: u32 = 5;

/// Unit: us.
#[derive(Default)]
pub struct Delays {
    pub prewarms: Vec<f32>,
    /// From before the client's `connect`.
    pub connects: Vec<f32>,
    pub wakes: Vec<f32>,
}

pub struct Prewarm {
    proxy: Running,
    wake: Wake,
}

impl Prewarm {
    pub fn start(setting: &Setting) -> anyhow::Result<Self> {
        let options = ["--device", "sim:m2", "--hold-for", "0 s", "--cap", "1000"];
        Ok(Prewarm {
            proxy: everwarm(setting, &setting.everwarm, &options)?,
            wake: Wake::start(setting.placement)?,
        })
    }

    /// So many `connections`, one after the other.
    pub async fn round(
        &mut self,
        clock: Clock,
        connections: u32,
        delays: &mut Delays,
    ) -> anyhow::Result<()> {
        let admin = self.proxy.admin.context("everwarm has an admin port")?;
        for _ in 0..connections {
            for _ in 0..WAKES {
                tokio::time::sleep(GRACE / WAKES).await;
                delays.wakes.push(self.wake.once()?);
            }
            let began = Monotonic::now().0;
            let mut connection = Connection::open(self.proxy.address, clock).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            let last = &status(admin).await?["last_prewarm"];
            let stamp = |key: &str| last[key].as_u64();
            let (event, submitted) = stamp("event_ns")
                .zip(stamp("submitted_ns"))
                .context("a connection was accepted and nothing was warmed for it")?;
            anyhow::ensure!(event >= began, "a connection was accepted and nothing was warmed");
            delays.prewarms.push((submitted - event) as f32 / 1e3);
            delays.connects.push((submitted - began) as f32 / 1e3);
            // A connection that never brings a request is not believed for long.
            connection.ask(false, &mut Samples::default()).await?;
        }
        Ok(())
    }
}

struct Wake {
    bell: UnixStream,
    woken: Receiver<f32>,
}

impl Wake {
    fn start(placement: Placement) -> anyhow::Result<Self> {
        let (bell, mut rung) = UnixStream::pair()?;
        let (report, woken) = channel();
        let (sender, receiver) = channel::<u64>();
        placement.on(placement.proxies, || {
            std::thread::spawn(move || {
                let mut byte = [0];
                while rung.read_exact(&mut byte).is_ok() {
                    let _ = sender.send(Monotonic::now().0);
                }
            });
            std::thread::spawn(move || {
                everwarm_gpu::wake_promptly();
                // As the warmer sleeps: with a time-out.
                while let Ok(stamp) = receiver.recv_timeout(Duration::from_secs(3600)) {
                    let woken = Monotonic::now().0 - stamp;
                    let _ = report.send(woken as f32 / 1e3);
                }
            });
        })?;
        Ok(Wake { bell, woken })
    }

    fn once(&mut self) -> anyhow::Result<f32> {
        self.bell.write_all(&[1])?;
        Ok(self.woken.recv_timeout(Duration::from_secs(5))?)
    }
}
