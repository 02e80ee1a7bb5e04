//! Validated sampling parameters: the only way to get a [`Sampling`] is through its checks, so that nothing behind
//! it has to look again. Penalties, biases and masks act before these: see [`crate::Adjustments`].

/// Temperature, top-k, top-p and min-p, applied in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    temperature: f64,
    top_k: u32,
    top_p: f64,
    min_p: f64,
}

/// A sampling parameter outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {limit}")]
pub struct ParamError {
    /// The parameter's name as a request spells it.
    pub field: &'static str,
    /// The value as it was given.
    pub value: String,
    /// What the parameter may be, worded to follow "it must be".
    pub limit: &'static str,
}

impl Sampling {
    /// Temperature 0: always the likeliest token, the lowest id among equals.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 };

    /// Temperature 1 and no truncation: the model's own distribution.
    pub const PLAIN: Self = Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 };

    /// Checks every parameter. `top_k` 0, `top_p` 1 and `min_p` 0 each switch their truncation off; `temperature` 0
    /// is greedy, whatever the others say.
    ///
    /// # Errors
    ///
    /// The first parameter out of range: `temperature` must be within [0, 100], `top_p` within (0, 1], `min_p`
    /// within [0, 1]; none may be NaN.
    pub fn new(temperature: f64, top_k: u32, top_p: f64, min_p: f64) -> Result<Self, ParamError> {
        let refuse = |field, value: f64, limit| Err(ParamError { field, value: value.to_string(), limit });
        if !(0.0..=100.0).contains(&temperature) {
            return refuse("temperature", temperature, "a finite number between 0 and 100");
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return refuse("top_p", top_p, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&min_p) {
            return refuse("min_p", min_p, "between 0 and 1");
        }
        Ok(Self { temperature, top_k, top_p, min_p })
    }

    /// What the logits are divided by; 0 is greedy.
    #[must_use]
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    /// How many of the likeliest tokens stay; 0 keeps all.
    #[must_use]
    pub fn top_k(&self) -> u32 {
        self.top_k
    }

    /// The mass the shortest kept prefix of likeliest tokens must reach; 1 keeps all.
    #[must_use]
    pub fn top_p(&self) -> f64 {
        self.top_p
    }

    /// The least probability kept, as a fraction of the largest; 0 keeps all.
    #[must_use]
    pub fn min_p(&self) -> f64 {
        self.min_p
    }

    /// Whether the distribution is all on the likeliest token.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_ends_of_every_range() {
        for (temperature, top_k, top_p, min_p) in
            [(0.0, 0, 1.0, 0.0), (100.0, u32::MAX, f64::MIN_POSITIVE, 1.0), (1e-310, 1, 0.5, 0.5)]
        {
            let sampling = Sampling::new(temperature, top_k, top_p, min_p).unwrap();
            assert_eq!(
                (sampling.temperature(), sampling.top_k(), sampling.top_p(), sampling.min_p()),
                (temperature, top_k, top_p, min_p)
            );
        }
        assert_eq!(Sampling::new(0.0, 0, 1.0, 0.0).unwrap(), Sampling::GREEDY);
        assert!(Sampling::new(-0.0, 0, 1.0, 0.0).unwrap().is_greedy());
    }

    #[test]
    fn refuses_by_name() {
        let refused = |t, p, m| Sampling::new(t, 0, p, m).unwrap_err();
        assert_eq!(
            refused(-1.0, 1.0, 0.0).to_string(),
            "temperature is -1; it must be a finite number between 0 and 100"
        );
        for t in [100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(t, 1.0, 0.0).field, "temperature");
        }
        for p in [0.0, -0.5, 1.1, f64::NAN] {
            assert_eq!(refused(1.0, p, 0.0).field, "top_p");
        }
        for m in [-0.1, 1.5, f64::NAN] {
            assert_eq!(refused(1.0, 1.0, m).field, "min_p");
        }
    }
}
