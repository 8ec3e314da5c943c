//! What an interval says against a margin.
//!
//! Everything here is about *cost*: the ratio by which an arm is dearer than
//! the baseline, so above 1 is worse whether seconds or transactions were
//! measured. With a margin of 2 %:
//!
//! ```text
//!            1/1.02    1    1.02
//! equivalent    | |--+--| |         90 % interval inside the margin
//! no worse    |------+---|          one-sided 95 %: its end below 1.02
//! worse                |--+----|    95 % interval above 1, not inside the margin
//! better   |---+---|                99 % interval below 1, not inside the margin
//! undecided   |----------+------|   anything else
//! ```
//!
//! A difference that is real and inside the margin is `equivalent`: that is what
//! the margin was chosen for. That protection makes things cheaper is a surprise,
//! so `better` takes more evidence; with less it is `no worse`.

use crate::stats::power::{BLOCKS_MIN, blocks_needed};
use crate::stats::signed_rank::Estimate;
use crate::stats::signed_rank::{hodges_lehmann, signed_rank};
use crate::stats::summary::robust_sd;

/// The part of the chance to err that a verdict of `better` may use.
const SURPRISE: f64 = 0.2;

/// What may go wrong in a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The chance that a verdict of `worse` or `better` is wrong, and that one of
    /// `no worse` is; smaller for each look of a sequential plan.
    pub alpha: f64,
}

impl Default for Level {
    fn default() -> Self {
        Self { alpha: 0.05 }
    }
}

/// The verdict on one pair of arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Dearer, and not by less than the margin.
    Worse,
    /// Too few blocks, or too much noise.
    Undecided {
        /// How many blocks more would probably decide, if that is known.
        more: Option<u64>,
    },
    /// Dearer by less than the margin, if at all.
    NoWorse,
    /// No difference beyond the margin either way.
    Equivalent,
    /// Cheaper, and not by less than the margin.
    Better,
}

impl Verdict {
    /// One word or two, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Undecided { .. } => "undecided",
            Self::NoWorse => "no worse",
            Self::Equivalent => "equivalent",
            Self::Better => "better",
        }
    }

    /// For people, with the margin as a part of one (0.02).
    #[must_use]
    pub fn phrase(self, margin: f64) -> String {
        let percent = percent(margin);
        match self {
            Self::Worse => "worse".to_owned(),
            Self::Better => "better".to_owned(),
            Self::NoWorse => format!("no worse than {percent} %"),
            Self::Equivalent => format!("equivalent within {percent} %"),
            Self::Undecided { more: Some(more) } => format!("undecided: about {more} more blocks"),
            Self::Undecided { more: None } => "undecided: too few blocks to say more".to_owned(),
        }
    }
}

/// A margin as people write it: `2`, `0.5`.
#[must_use]
pub fn percent(margin: f64) -> String {
    let text = format!("{:.3}", margin * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What the differences of one pair of arms say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The typical logarithm of cost, with the interval of a two-sided test at
    /// the level.
    pub estimate: Estimate,
    /// The same with an interval that leaves `alpha` on either side.
    pub inner: Estimate,
    /// The p-value of the signed rank test; 1 where all are alike.
    pub p: f64,
}

/// Estimates the cost from its logarithms, a block each.
#[must_use]
pub fn estimate(costs: &[f64], level: Level) -> Option<Judged> {
    let inner = hodges_lehmann(costs, 1.0 - 2.0 * level.alpha)?;
    Some(Judged {
        estimate: hodges_lehmann(costs, 1.0 - level.alpha)?,
        // Where most are the same, ranks tell nothing of how far the others lie: what was seen does.
        inner: if mostly_tied(costs) { all_of(costs, inner) } else { inner },
        p: signed_rank(costs).map_or(1.0, |test| test.p),
    })
}

/// True if more than half have no distance from their middle at all.
pub fn mostly_tied(costs: &[f64]) -> bool {
    robust_sd(costs) == Some(0.0)
}

fn all_of(costs: &[f64], estimate: Estimate) -> Estimate {
    costs.iter().fold(estimate, |all, cost| Estimate {
        low: all.low.min(*cost),
        high: all.high.max(*cost),
        ..all
    })
}

/// The verdict. `p` is that of the pair, corrected for the other pairs beside
/// it; `margin` a part of one.
#[must_use]
pub fn judge(judged: &Judged, p: f64, costs: &[f64], margin: f64, level: Level) -> Verdict {
    let bound = margin.ln_1p();
    let (inner, outer) = (judged.inner, judged.estimate);
    if inner.high < bound && inner.low > -bound {
        return Verdict::Equivalent;
    }
    let surprise = Level { alpha: level.alpha * SURPRISE };
    let cheaper = || estimate(costs, surprise).is_some_and(|sure| sure.estimate.high < 0.0);
    if outer.high < 0.0 && p <= surprise.alpha && cheaper() {
        return Verdict::Better;
    }
    if inner.high < bound {
        return Verdict::NoWorse;
    }
    if outer.low > 0.0 && p <= level.alpha {
        return Verdict::Worse;
    }
    // What Holm makes of p where there are other pairs beside this one. A p that
    // ended at 1 tells less than the whole factor; such a pair shows nothing yet.
    let strictness = if judged.p > 0.0 { (p / judged.p).max(1.0) } else { 1.0 };
    Verdict::Undecided { more: more_blocks(costs, outer.value, bound, level, strictness) }
}

/// How many blocks more would exclude the margin if there is no difference at
/// all. Where that number is there already, the truth lies near a bound, and what
/// is nearer decides: to show that it is below the margin, or that it is above
/// nothing. The latter is corrected for the pairs beside it, so it takes more.
fn more_blocks(
    costs: &[f64],
    value: f64,
    bound: f64,
    level: Level,
    strictness: f64,
) -> Option<u64> {
    if costs.len() < 3 {
        return None;
    }
    // Nothing follows from a spread of nothing, unless all are the same.
    let is_tied = mostly_tied(costs) && costs.iter().any(|cost| Some(cost) != costs.first());
    let sd = robust_sd(costs).filter(|_| !is_tied)?;
    let count = u64::try_from(costs.len()).ok()?;
    let more = |needed: u64| needed.checked_sub(count).filter(|more| *more > 0);
    if count < BLOCKS_MIN {
        let needed = blocks_needed(sd, bound, level.alpha).unwrap_or(BLOCKS_MIN);
        return more(needed);
    }
    let plain = blocks_needed(sd, bound, level.alpha)?;
    more(plain).or_else(|| {
        let corrected = level.alpha / strictness;
        let below = blocks_needed(sd, bound - value, level.alpha);
        let above = blocks_needed(sd, value, corrected / 2.0)
            .map(|blocks| blocks.max(blocks_for_p(corrected)));
        let nearer = [below, above].into_iter().flatten().min()?;
        more(nearer).or(Some(count.div_ceil(2)))
    })
}

/// The number of blocks that, if all agree, have a p of `alpha`: the signed rank test gives no
/// less than 2/2^n.
fn blocks_for_p(alpha: f64) -> u64 {
    let mut blocks = 1;
    let mut p = 1.0;
    while p > alpha && blocks < BLOCKS_MIN * 10 {
        p /= 2.0;
        blocks += 1;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    const MARGIN: f64 = 0.02;

    #[test]
    fn ties_beside_a_figure_far_out_are_not_equivalent() {
        let ties = [vec![0.0; 10], vec![1000_f64.ln()]].concat();
        assert_eq!(verdict(&ties), Verdict::Undecided { more: None });
        let judged = estimate(&ties, Level::default()).unwrap();
        assert!(judged.inner.high >= judged.estimate.high, "{judged:?}");
        let cheaper: Vec<f64> = ties.iter().map(|cost| -cost).collect();
        assert_eq!(verdict(&cheaper).name(), "no worse");
        // Without one, and with one inside the margin, they are.
        assert_eq!(verdict(&[0.0; 11]), Verdict::Equivalent);
        let near = [vec![0.0; 10], vec![0.019]].concat();
        assert_eq!(verdict(&near), Verdict::Equivalent);
    }

    /// Blocks whose cost lies at `ratio` with so much noise.
    fn costs(random: &mut Random, blocks: usize, ratio: f64, noise: f64) -> Vec<f64> {
        (0..blocks).map(|_| ratio.ln() + noise * random.normal()).collect()
    }

    fn verdict(costs: &[f64]) -> Verdict {
        let judged = estimate(costs, Level::default()).unwrap();
        judge(&judged, judged.p, costs, MARGIN, Level::default())
    }

    #[test]
    fn each_verdict_comes_from_where_its_interval_lies() {
        let mut random = Random::new(7);
        let mut of = |ratio, noise| verdict(&costs(&mut random, 30, ratio, noise)).name();
        assert_eq!(of(1.05, 0.02), "worse");
        assert_eq!(of(0.95, 0.02), "better");
        assert_eq!(of(1.0, 0.01), "equivalent");
        assert_eq!(of(0.99, 0.04), "no worse");
        assert_eq!(of(1.0, 0.3), "undecided");
        // Real, and smaller than what the margin lets pass.
        assert_eq!(of(1.01, 0.005), "equivalent");
    }

    /// Whatever the noise: below, at and above what the margin lets through.
    #[test]
    fn identical_arms_are_called_different_no_more_often_than_promised() {
        for noise in [0.01, 0.03, 0.05, 0.1] {
            let mut random = Random::new(13);
            let different = (0..1000)
                .filter(|_| {
                    let verdict = verdict(&costs(&mut random, 30, 1.0, noise));
                    matches!(verdict, Verdict::Worse | Verdict::Better)
                })
                .count();
            // A fortieth for worse, a two-hundredth for better: 30, and three
            // standard deviations.
            assert!(different <= 30 + 16, "{different} of 1000 at a noise of {noise}");
        }
    }

    #[test]
    fn a_difference_that_the_correction_takes_back_is_undecided() {
        let costs = costs(&mut Random::new(7), 30, 1.05, 0.02);
        let judged = estimate(&costs, Level::default()).unwrap();
        let verdict = judge(&judged, 0.06, &costs, MARGIN, Level::default());
        assert_eq!(verdict.name(), "undecided");
    }

    #[test]
    fn correction_asks_for_more_blocks() {
        let costs = [0.3; 6];
        let judged = estimate(&costs, Level::default()).unwrap();
        for (pairs, more) in [(2.0, 1), (3.0, 1), (4.0, 2), (20.0, 4)] {
            let verdict = judge(&judged, pairs * judged.p, &costs, MARGIN, Level::default());
            assert_eq!(verdict, Verdict::Undecided { more: Some(more) }, "{pairs}");
        }
        assert_eq!(blocks_for_p(0.05), BLOCKS_MIN);
    }

    #[test]
    fn few_blocks_are_undecided_whatever_they_show() {
        assert_eq!(verdict(&[0.3; 2]), Verdict::Undecided { more: None });
        assert_eq!(verdict(&[0.3; 5]), Verdict::Undecided { more: Some(1) });
        assert_eq!(verdict(&[0.3; 6]), Verdict::Worse);
        assert_eq!(verdict(&[0.0; 6]), Verdict::Equivalent);
    }

    #[test]
    fn as_many_more_blocks_as_are_asked_for_mostly_decide() {
        let mut random = Random::new(11);
        let decided = (0..100)
            .filter(|_| {
                let mut blocks = costs(&mut random, 30, 1.0, 0.1);
                let Verdict::Undecided { more } = verdict(&blocks) else { return true };
                let more = usize::try_from(more.unwrap()).unwrap();
                blocks.extend(costs(&mut random, more, 1.0, 0.1));
                !matches!(verdict(&blocks), Verdict::Undecided { .. })
            })
            .count();
        assert!(decided >= 70, "{decided} of 100");
    }

    #[test]
    fn phrases_name_the_margin_and_what_to_do() {
        assert_eq!(Verdict::NoWorse.phrase(0.02), "no worse than 2 %");
        assert_eq!(Verdict::Equivalent.phrase(0.005), "equivalent within 0.5 %");
        let undecided = Verdict::Undecided { more: Some(240) };
        assert_eq!(undecided.phrase(0.02), "undecided: about 240 more blocks");
    }
}
