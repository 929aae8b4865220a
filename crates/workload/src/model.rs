//! A transformer's shape, and what one pass over it costs.
//!
//! Costs are counted, not fitted: operations and bytes follow from layers, width, heads and
//! quantisation. How well a runtime's kernels use a device is the runtime's data.

use crate::runtime::{Error, built_in_text, parse};

/// A decoder-only transformer with grouped-query attention and a gated feed-forward block.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// As published.
    pub name: String,
    /// Transformer blocks.
    pub layers: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_dim: u32,
    /// Width of the feed-forward block.
    pub ffn: u32,
    /// Rows of the embedding, which is also the output matrix.
    pub vocabulary: u32,
    /// Stored bits of one weight, its share of scales included.
    pub bits_per_weight: f64,
    /// Stored bits of one number of the key-value cache.
    pub bits_per_kv: f64,
}

/// What one pass costs, before any efficiency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Floating-point operations in matrix products (padded rows counted).
    pub flops: f64,
    /// Bytes of weights read.
    pub weights: f64,
    /// Bytes of key-value cache read.
    pub cache: f64,
}

impl Model {
    /// Names of the built-in models.
    pub const BUILT_IN: &'static [(&'static str, &'static str)] =
        &[("llama-3.2-3b-4bit", include_str!("../models/llama-3.2-3b-4bit.toml"))];

    /// A built-in model.
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the ones there are.
    pub fn built_in(name: &str) -> Result<Model, Error> {
        Self::from_toml(built_in_text("model", name, Self::BUILT_IN)?)
    }

    /// Reads a model file.
    ///
    /// # Errors
    /// [`Error::Invalid`] with line, value and what was expected.
    pub fn from_toml(text: &str) -> Result<Model, Error> {
        parse::<Model>(text)?.checked()
    }

    /// The table `[model]` of a runtime file.
    pub(crate) fn from_table(table: toml::Table) -> Result<Model, Error> {
        let model: Result<Model, _> = table.try_into();
        model.map_err(|e| Error::Invalid(format!("[model] {}", e.message())))?.checked()
    }

    fn checked(self) -> Result<Model, Error> {
        let counts = [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("ffn", self.ffn),
            ("vocabulary", self.vocabulary),
        ];
        let counts = counts.map(|(key, n)| (key, f64::from(n)));
        let bits = [("bits_per_weight", self.bits_per_weight), ("bits_per_kv", self.bits_per_kv)];
        // Written so that a NaN is refused, too.
        let wrong = counts.iter().chain(&bits).find(|(_, n)| !n.is_finite() || *n <= 0.0);
        match wrong {
            Some((key, n)) => Err(Error::Invalid(format!(
                "the model's {key} is {n}; expected a finite number above 0"
            ))),
            None => Ok(self),
        }
    }

    /// Width of all query heads, of all key (or value) heads.
    fn attention_widths(&self) -> [f64; 2] {
        [self.heads, self.kv_heads].map(|n| f64::from(n) * f64::from(self.head_dim))
    }

    /// Weights of one block's matrices.
    fn layer_weights(&self) -> f64 {
        let d = f64::from(self.width);
        let [q, kv] = self.attention_widths();
        2.0 * d * q + 2.0 * d * kv + 3.0 * d * f64::from(self.ffn)
    }

    fn weight_bytes(&self, weights: f64) -> f64 {
        weights * self.bits_per_weight / 8.0
    }

    /// One block over `rows` new tokens that follow `context` earlier ones; a matmul computes
    /// `padded` rows.
    pub(crate) fn layer(&self, rows: u32, padded: u32, context: u32) -> Cost {
        let (m, c) = (f64::from(rows), f64::from(context));
        let [q, kv] = self.attention_widths();
        // Scores and weighted values, each 2 operations a product; a new token sees what came
        // before it and, on average, half of the new ones.
        let attention = 4.0 * m * (c + m / 2.0) * q;
        Cost {
            flops: 2.0 * f64::from(padded) * self.layer_weights() + attention,
            weights: self.weight_bytes(self.layer_weights()),
            cache: 2.0 * (c + m) * kv * self.bits_per_kv / 8.0,
        }
    }

    /// The output matrix, for one token.
    pub(crate) fn head(&self) -> Cost {
        let weights = f64::from(self.width) * f64::from(self.vocabulary);
        Cost { flops: 2.0 * weights, weights: self.weight_bytes(weights), cache: 0.0 }
    }

    /// Bytes of weights that one decode step reads.
    ///
    /// Unit: B.
    pub fn bytes_per_token(&self) -> f64 {
        f64::from(self.layers) * self.weight_bytes(self.layer_weights()) + self.head().weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_3b_has_its_published_size() {
        let model = Model::built_in("llama-3.2-3b-4bit").unwrap();
        let parameters = model.bytes_per_token() * 8.0 / model.bits_per_weight;
        assert!((parameters / 3.21e9 - 1.0).abs() < 0.01, "{parameters}");
    }
}
