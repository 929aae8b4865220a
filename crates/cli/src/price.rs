//! Options that say what warming may cost: a cap, an average, or what a millisecond is worth.

use anyhow::bail;
use everwarm_governor::Price;
use everwarm_units::{Joules, Span};

/// Without a word from the user. Source: guess: three hours of a hold on an M2.
const CAP: Joules = Joules::wh(2.0);
/// A cap where only an average was given: a busy day may use twice as much.
const ABOVE_AVERAGE: f64 = 2.0;

#[derive(clap::Args)]
pub struct PriceArgs {
    /// Watt-hours that warming may use in any 24 hours, whatever a policy wishes. Default: 2, or twice
    /// the budget.
    #[arg(long, value_name = "WH", value_parser = crate::commands::hold::watt_hours)]
    cap: Option<Joules>,
    /// What an average day may use, such as 2Wh/day, for the policies that weigh (`learned`,
    /// `ski-rental`): they make the best of it. Default: the cap.
    #[arg(long, value_name = "WH/day", value_parser = budget)]
    budget: Option<Joules>,
    /// What a first token that comes a millisecond sooner is worth, such as 0.02 (or `20 mJ`), for
    /// the same policies, in place of a budget. At 0.02 a cold start of an M2 (30 ms) is worth 0.6 J,
    /// which holds it warm for 0.9 s.
    #[arg(long, value_name = "J", conflicts_with = "budget", value_parser = joules)]
    joules_per_ms: Option<Joules>,
    /// The pause between kernels of the policy `timer`.
    #[arg(long, value_name = "SPAN", default_value = "500 ms", value_parser = tick)]
    tick: Span,
}

impl PriceArgs {
    /// The pause of a policy that ticks.
    pub fn tick(&self) -> Span {
        self.tick
    }

    /// What may be used in any 24 hours.
    ///
    /// # Errors
    /// The budget is above the cap.
    pub fn cap(&self) -> anyhow::Result<Joules> {
        match (self.cap, self.budget) {
            (Some(cap), Some(budget)) if budget > cap => {
                let (cap, budget) = (cap.as_wh(), budget.as_wh());
                bail!(
                    "--budget {budget} Wh/day is more than --cap {cap} Wh allows; raise the cap, or leave \
                     it out: it is twice the budget then"
                )
            }
            (Some(cap), _) => Ok(cap),
            (None, Some(budget)) => Ok(budget * ABOVE_AVERAGE),
            (None, None) => Ok(CAP),
        }
    }

    /// What saved time is worth.
    ///
    /// # Errors
    /// The budget is above the cap.
    pub fn price(&self) -> anyhow::Result<Price> {
        Ok(match (self.joules_per_ms, self.budget) {
            (Some(price), _) => Price::PerMs(price),
            (None, Some(budget)) => Price::PerDay(budget),
            (None, None) => Price::PerDay(self.cap()?),
        })
    }

    /// An option that this policy does not look at.
    pub fn warning(&self, policy: &str) -> Option<String> {
        let option = match (self.budget, self.joules_per_ms) {
            _ if ["learned", "ski-rental"].contains(&policy) => None,
            (Some(_), _) => Some("--budget"),
            (_, Some(_)) => Some("--joules-per-ms"),
            (None, None) => None,
        }?;
        Some(format!(
            "the policy `{policy}` does not weigh energy, so that {option} changes nothing but the cap; \
             --policy learned and --policy ski-rental do"
        ))
    }
}

/// `2Wh/day`; a bare number is watt-hours a day.
fn budget(text: &str) -> Result<Joules, String> {
    let text = text.trim();
    let energy = text.strip_suffix("/day").or(text.strip_suffix("/d")).unwrap_or(text).trim();
    let bare = energy.parse::<f64>().is_ok();
    let spelled = if bare { format!("{energy} Wh") } else { energy.to_owned() };
    match spelled.parse::<Joules>() {
        Ok(energy) if energy > Joules::ZERO => Ok(energy),
        Ok(_) => Err("a budget of nothing is --policy never; expected such as 2Wh/day".to_owned()),
        Err(_) => Err(format!("`{text}` is no energy a day; expected such as 2Wh/day or 500J/day")),
    }
}

/// `0.02`: a bare number is joules.
fn joules(text: &str) -> Result<Joules, String> {
    let bare = text.trim().parse::<f64>().is_ok();
    let spelled = if bare { format!("{} J", text.trim()) } else { text.to_owned() };
    match spelled.parse::<Joules>() {
        Ok(energy) if energy > Joules::ZERO => Ok(energy),
        Ok(_) => Err("a millisecond that is worth nothing is --policy never".to_owned()),
        Err(_) => Err(format!("`{text}` is no energy; expected such as 0.02 or `20 mJ`")),
    }
}

/// Shorter pauses than a kernel and its waking would be a hold.
fn tick(text: &str) -> Result<Span, String> {
    let tick: Span = text.parse().map_err(|error: everwarm_units::ParseError| error.to_string())?;
    let least = Span::ms(10);
    if tick < least { Err(format!("a tick is at least {least}, not {tick}")) } else { Ok(tick) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        price: PriceArgs,
    }

    fn read(words: &[&str]) -> Result<(Joules, Price), String> {
        let line = Line::try_parse_from([&["x"], words].concat()).map_err(|e| e.to_string())?;
        let both = line.price.cap().and_then(|cap| Ok((cap, line.price.price()?)));
        both.map_err(|error| error.to_string())
    }

    #[test]
    fn a_price_is_said_in_either_way_and_the_cap_follows() {
        let wh = Joules::wh;
        let check = |words: &[&str], cap, price| assert_eq!(read(words), Ok((cap, price)));
        check(&[], wh(2.0), Price::PerDay(wh(2.0)));
        check(&["--cap", "3"], wh(3.0), Price::PerDay(wh(3.0)));
        check(&["--budget", "2Wh/day"], wh(4.0), Price::PerDay(wh(2.0)));
        check(&["--budget", "0.5 Wh/d", "--cap", "2"], wh(2.0), Price::PerDay(wh(0.5)));
        check(&["--budget", "1"], wh(2.0), Price::PerDay(wh(1.0)));
        check(&["--budget", "3600J/day"], wh(2.0), Price::PerDay(wh(1.0)));
        check(&["--joules-per-ms", "0.02"], wh(2.0), Price::PerMs(Joules::mj(20.0)));
        check(&["--joules-per-ms", "20 mJ"], wh(2.0), Price::PerMs(Joules::mj(20.0)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let check = |words: &[&str], says: &str| {
            let error = read(words).expect_err("it makes no sense");
            assert!(error.contains(says), "{error}");
        };
        check(&["--budget", "3Wh/day", "--cap", "2"], "raise the cap");
        check(&["--budget", "0"], "--policy never");
        check(&["--budget", "2 W"], "2Wh/day");
        check(&["--budget", "-1"], "");
        check(&["--joules-per-ms", "much"], "20 mJ");
        check(&["--joules-per-ms", "0"], "--policy never");
        check(&["--joules-per-ms", "1", "--budget", "1"], "cannot be used with");
        check(&["--tick", "1 ms"], "at least 10 ms");
        check(&["--cap", "0"], "more than 0");
    }

    #[test]
    fn a_price_that_nobody_looks_at_is_told() {
        let line = Line::parse_from(["x", "--budget", "2Wh/day"]);
        assert!(line.price.warning("study").unwrap().contains("--budget"));
        assert_eq!(line.price.warning("learned"), None);
        assert_eq!(Line::parse_from(["x"]).price.warning("study"), None);
    }
}
