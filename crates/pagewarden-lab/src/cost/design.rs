//! The design of a run: how many blocks, in which order, with which looks. All
//! of it is settled by the plan and its seed before the first run, and written
//! at the head of the samples.
//!
//! ```text
//! random  | B A A' | A B A' | A' A B |   each block in an order of its own
//! abba    | A A' B | B A' A | A A' B |   forwards and backwards in turn
//! duet    | A+A'+B | A+A'+B | A+A'+B |   all arms of a block at once
//! ```
//!
//! `A'` is the control: the baseline once more, under another name. What
//! differs between A and A' is noise.
//!
//! **Looks.** A fixed plan is analysed once, at its end. A sequential one may end
//! early, at looks declared beforehand; each look has a share of the chance to
//! err, and the shares add up to the whole (Bonferroni). However the looks
//! depend on each other, the chance of a false verdict stays below 5 %. The last
//! look has most of it, so that going on to the end costs little.
//!
//! **A budget of time** makes a plan sequential, with four times the blocks and one look more: each
//! condition runs until its verdict stands or its share of the time is over. The clock does not
//! depend on which arm is better, so that ending by it adds nothing to the chance to err; what was
//! measured is judged at the level of the look that would have come next.

use serde::{Deserialize, Serialize};

use crate::cost::experiment::{Description, Form, Kind};
use crate::stats::random::Random;
use crate::stats::verdict::Level;

/// In which order the arms of a block run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// An order of its own for each block.
    Random,
    /// Forwards and backwards in turn.
    Abba,
    /// All at once.
    Duet,
}

/// What is settled before the first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Short or whole.
    pub form: Form,
    /// The seed of every order.
    pub seed: u64,
    /// Blocks of every experiment with noisy figures; each experiment's own
    /// number where absent.
    pub blocks: Option<u32>,
    /// The order within a block.
    pub order: Order,
    /// Whether the baseline runs twice in each block.
    pub control: bool,
    /// Whether there are looks before the end.
    pub sequential: bool,
    /// How long the run may take, in seconds, preparations included; at the end of each block the
    /// clock is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_seconds: Option<u64>,
    /// The smallest difference that matters, as a part of one.
    pub margin: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            form: Form::Whole,
            seed: 1,
            blocks: None,
            order: Order::Random,
            control: true,
            sequential: false,
            budget_seconds: None,
            margin: 0.02,
        }
    }
}

/// A look: the analysis after a number of counted blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Counted blocks.
    pub blocks: u32,
    /// What this look may err.
    pub level: Level,
}

/// One block of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// From 0, those that warm up included.
    pub number: u32,
    /// Whether it is left out of the analysis.
    pub warm_up: bool,
    /// The arms in the order in which they run; the control is behind the last.
    pub arms: Vec<usize>,
}

/// The looks of a sequential plan: when, and what share of the error.
const LOOKS: [(f64, f64); 3] = [(0.4, 0.1), (0.7, 0.3), (1.0, 0.6)];
/// Those of a plan with a budget of time, which may end at any block.
const LOOKS_IN_BUDGET: [(f64, f64); 4] = [(0.125, 0.1), (0.25, 0.3), (0.5, 0.3), (1.0, 0.3)];
/// How many times an experiment's own number of blocks a budget may buy.
const BLOCKS_IN_BUDGET: u32 = 4;
/// With fewer blocks no look but the last could say anything: the signed rank
/// test at a tenth of 5 % needs nine pairs.
const SEQUENTIAL_BLOCKS_MIN: u32 = 23;
/// The chance of a false verdict on one pair of arms.
const ALPHA: f64 = 0.05;

impl Plan {
    /// How many counted blocks an experiment gets.
    #[must_use]
    pub fn blocks_of(&self, description: &Description) -> u32 {
        let (short, whole) = description.blocks;
        let own = match self.form {
            Form::Short => short,
            Form::Whole => whole,
        };
        let own = own.max(1);
        match self.blocks {
            _ if !is_noisy(description) => own,
            Some(blocks) => blocks.max(1),
            None if self.budget_seconds.is_some() => own * BLOCKS_IN_BUDGET,
            None => own,
        }
    }

    /// How many blocks warm up: one, where figures are noisy and there is more
    /// than one. The rule is settled here; no block is dropped for its figures.
    #[must_use]
    pub fn warm_up_of(&self, description: &Description) -> u32 {
        u32::from(is_noisy(description) && self.blocks_of(description) > 1)
    }

    /// Whether an experiment gets the control.
    #[must_use]
    pub fn controls(&self, description: &Description) -> bool {
        self.control && is_noisy(description)
    }

    /// The looks at an experiment with `blocks` counted blocks, the end last.
    #[must_use]
    pub fn looks(&self, blocks: u32) -> Vec<Look> {
        if !self.sequential || blocks < SEQUENTIAL_BLOCKS_MIN {
            return vec![Look { blocks, level: Level { alpha: ALPHA } }];
        }
        let looks: &[(f64, f64)] =
            if self.budget_seconds.is_some() { &LOOKS_IN_BUDGET } else { &LOOKS };
        looks
            .iter()
            .map(|(part, share)| {
                // A part of a small number.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let at = (f64::from(blocks) * part).ceil() as u32;
                Look { blocks: at, level: Level { alpha: ALPHA * share } }
            })
            .collect()
    }

    /// Every block of one condition: warming up, then counted.
    #[must_use]
    pub fn schedule(&self, description: &Description, condition: &str) -> Vec<Block> {
        let arms = description.arms.len() + usize::from(self.controls(description));
        let mut random = Random::new(self.seed ^ fingerprint(description.name, condition));
        let mut first: Vec<usize> = (0..arms).collect();
        random.shuffle(&mut first);
        let warm_up = self.warm_up_of(description);
        (0..warm_up + self.blocks_of(description))
            .map(|number| {
                let mut order = first.clone();
                match self.order {
                    Order::Abba if number % 2 == 1 => order.reverse(),
                    Order::Abba | Order::Duet => {}
                    Order::Random => random.shuffle(&mut order),
                }
                Block { number, warm_up: number < warm_up, arms: order }
            })
            .collect()
    }
}

/// True if something is measured that needs blocks.
fn is_noisy(description: &Description) -> bool {
    description.metrics.iter().any(|metric| metric.kind == Kind::Timed)
}

/// A number from names (FNV-1a), so that every condition has orders of its own.
fn fingerprint(name: &str, condition: &str) -> u64 {
    let bytes = name.bytes().chain([0]).chain(condition.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::experiment::{Arm, Better, Metric};
    use crate::stats::verdict::{Verdict, estimate, judge};

    const ARMS: &[Arm] = &[Arm { name: "off", what: "" }, Arm { name: "on", what: "" }];
    const TIMED: &[Metric] =
        &[Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower }];
    const EXACT: &[Metric] =
        &[Metric { name: "wal", unit: "bytes", kind: Kind::Exact, better: Better::Lower }];

    fn description(metrics: &'static [Metric]) -> Description {
        Description {
            name: "e",
            title: "",
            question: "",
            seed: "",
            by_hand: "",
            arms: ARMS,
            metrics,
            is_price: true,
            decides: None,
            seed_figures: &[],
            blocks: (5, 30),
        }
    }

    #[test]
    fn every_block_runs_every_arm_once_and_the_seed_settles_the_order() {
        let description = description(TIMED);
        for order in [Order::Random, Order::Abba, Order::Duet] {
            let plan = Plan { order, ..Plan::default() };
            let schedule = plan.schedule(&description, "c");
            assert_eq!(schedule.len(), 31);
            assert_eq!(schedule.iter().filter(|block| block.warm_up).count(), 1);
            for block in &schedule {
                let mut arms = block.arms.clone();
                arms.sort_unstable();
                assert_eq!(arms, [0, 1, 2]);
            }
            assert_eq!(schedule, plan.schedule(&description, "c"));
            let other = Plan { seed: 2, ..plan.clone() };
            if order == Order::Random {
                assert_ne!(schedule, other.schedule(&description, "c"));
                assert_ne!(schedule, plan.schedule(&description, "d"));
            }
        }
    }

    #[test]
    fn abba_turns_back_in_every_second_block() {
        let plan = Plan { order: Order::Abba, ..Plan::default() };
        let schedule = plan.schedule(&description(TIMED), "");
        for pair in schedule.windows(2) {
            assert!(pair[0].arms.iter().eq(pair[1].arms.iter().rev()), "{pair:?}");
        }
    }

    #[test]
    fn what_is_exact_needs_neither_control_nor_warming_up() {
        let plan = Plan { blocks: Some(100), form: Form::Short, ..Plan::default() };
        let schedule = plan.schedule(&description(EXACT), "");
        assert_eq!(schedule.len(), 5);
        assert!(schedule.iter().all(|block| !block.warm_up && block.arms.len() == 2));
    }

    #[test]
    fn looks_share_the_chance_to_err() {
        let sequential = Plan { sequential: true, ..Plan::default() };
        let looks = sequential.looks(30);
        assert_eq!(looks.iter().map(|look| look.blocks).collect::<Vec<_>>(), [12, 21, 30]);
        let spent: f64 = looks.iter().map(|look| look.level.alpha).sum();
        assert!((spent - ALPHA).abs() < 1e-12);
        assert_eq!(sequential.looks(10).len(), 1);
        let budget = Plan { budget_seconds: Some(60), ..sequential };
        let blocks = budget.blocks_of(&description(TIMED));
        let looks = budget.looks(blocks);
        assert_eq!(looks.iter().map(|look| look.blocks).collect::<Vec<_>>(), [15, 30, 60, 120]);
        let spent: f64 = looks.iter().map(|look| look.level.alpha).sum();
        assert!((spent - ALPHA).abs() < 1e-12);
        assert_eq!(Plan::default().looks(30).len(), 1);
    }

    /// Runs a plan to its end or to the first look that decides.
    fn simulate(
        plan: &Plan,
        blocks: u32,
        random: &mut Random,
        ratio: f64,
        sd: f64,
    ) -> (Verdict, u32) {
        let mut costs: Vec<f64> = Vec::new();
        let mut verdict = Verdict::Undecided { more: None };
        for look in plan.looks(blocks) {
            while costs.len() < usize::try_from(look.blocks).unwrap() {
                costs.push(ratio.ln() + sd * random.normal());
            }
            let judged = estimate(&costs, look.level).unwrap();
            verdict = judge(&judged, judged.p, &costs, plan.margin, look.level);
            if !matches!(verdict, Verdict::Undecided { .. }) {
                return (verdict, look.blocks);
            }
        }
        (verdict, blocks)
    }

    /// 4000 runs of two identical arms, at a noise where a difference would be
    /// claimed if peeking were free; and 4000 of an arm that is worse by the
    /// margin itself, which must not pass for no worse.
    #[test]
    fn a_sequential_plan_errs_no_more_often_than_it_says() {
        for (budget_seconds, blocks) in [(None, 30), (Some(60), 120)] {
            let plan = Plan { sequential: true, budget_seconds, ..Plan::default() };
            let mut random = Random::new(17);
            let mut different = 0;
            let mut let_pass = 0;
            for _ in 0..4000 {
                let (verdict, _) = simulate(&plan, blocks, &mut random, 1.0, 0.1);
                different += u32::from(matches!(verdict, Verdict::Worse | Verdict::Better));
                let (verdict, _) = simulate(&plan, blocks, &mut random, 1.02, 0.02);
                let_pass += u32::from(matches!(
                    verdict,
                    Verdict::NoWorse | Verdict::Equivalent | Verdict::Better
                ));
            }
            assert!(different <= 200, "{different} of 4000 alike are called different");
            assert!(let_pass <= 200, "{let_pass} of 4000 at the margin pass for no worse");
        }
    }

    #[test]
    fn a_sequential_plan_ends_early_where_there_is_much_to_see() {
        let plan = Plan { sequential: true, ..Plan::default() };
        let mut random = Random::new(19);
        let early = (0..200)
            .filter(|_| simulate(&plan, 30, &mut random, 1.2, 0.05) == (Verdict::Worse, 12))
            .count();
        assert!(early >= 190, "{early} of 200");
    }

    /// The promise of the plan: where the ratios of 30 blocks spread so that they
    /// just show 5 %, that is by somewhat less than 9 %, a planted 5 % is found in four of five
    /// runs. A sequential plan pays for its looks with a tenth less noise.
    #[test]
    fn five_percent_is_found_with_the_planned_blocks() {
        let sd = 0.05_f64.ln_1p() / crate::stats::power::visible_effect(1.0, 30, 0.025).unwrap();
        for (sequential, noise) in [(false, 1.0), (true, 0.9)] {
            let plan = Plan { sequential, ..Plan::default() };
            let mut random = Random::new(23);
            let found = (0..500)
                .filter(|_| {
                    simulate(&plan, 30, &mut random, 1.05, 0.95 * noise * sd).0 == Verdict::Worse
                })
                .count();
            assert!(found >= 400, "{found} of 500, sequential: {sequential}");
        }
    }
}
