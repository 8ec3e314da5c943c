//! What is answered, in which units, and where nothing is.

use super::*;
use crate::cost::analyse::analyse;
use crate::cost::csv;
use crate::cost::experiment::Better;
use crate::cost::report::text::{Look, text};
use crate::cost::result::Analysis;
use crate::stats::random::Random;
use pagewarden::report::colours::Colours;

/// Sixty runs of `none` and `sums`, each a figure a second, of which `sums` has `ratio` times as many.
fn measured(decision: &Decision, ratio: f64, noise: f64) -> Analysis {
    let mut random = Random::new(47);
    let mut table = "run,none,sums".to_owned();
    for row in 0..60 {
        let mut of = |ratio: f64| 1000.0 * ratio * (noise * random.normal()).exp();
        let _ = write!(table, "\n{row},{:.3},{:.3}", of(1.0), of(ratio));
    }
    let mut run = csv::parse(table.as_bytes(), "table", Better::Higher).unwrap();
    for record in &mut run.experiments {
        record.decides = Some(DecidesRecord {
            decision: decision.name.to_owned(),
            arms: vec!["sums".to_owned()],
            metrics: Vec::new(),
        });
        record.metrics.iter_mut().for_each(|metric| "1/s".clone_into(&mut metric.unit));
    }
    analyse(&run, 0.02)
}

fn answer_of(analysis: &Analysis) -> &DecisionResult {
    assert_eq!(analysis.decisions.len(), 1, "{:?}", analysis.decisions);
    analysis.decisions.first().unwrap()
}

#[test]
fn answer_follows_the_gravest_price() {
    let cases = [
        (&POSTGRES_CHECKSUMS, 1.0, "yes"),
        (&POSTGRES_CHECKSUMS, 0.965, "yes, at a price"),
        (&POSTGRES_CHECKSUMS, 0.8, "weigh the price"),
        (&INNODB_ALGORITHM, 1.0, "no difference"),
        (&INNODB_ALGORITHM, 1.2, "cheaper"),
        (&INNODB_ALGORITHM, 0.8, "dearer"),
        (&BACKUP_PASS, 0.8, "measured"),
    ];
    for (decision, ratio, expected) in cases {
        let analysis = measured(decision, ratio, 0.01);
        assert_eq!(answer_of(&analysis).answer, expected, "{} {ratio}", decision.name);
    }
}

#[test]
fn price_is_in_what_people_pay_and_has_its_interval() {
    let analysis = measured(&POSTGRES_CHECKSUMS, 0.9, 0.001);
    let said = &answer_of(&analysis).sentence;
    assert!(said.starts_with("weigh the price: "), "{said}");
    // A tenth of a thousand is lost; the noise is a thousandth.
    let value: f64 = said.split(' ').nth(3).unwrap().parse().unwrap();
    assert!((99.0..101.0).contains(&value), "{said}");
    assert!(
        said.contains(" fewer of 1") && said.contains("a second (-10.0 %) with sums"),
        "{said}"
    );
    assert_eq!(said.matches('[').count(), 1, "{said}");
}

#[test]
fn price_that_may_be_a_gain_is_said_as_an_interval() {
    let analysis = measured(&POSTGRES_CHECKSUMS, 1.0, 0.1);
    let said = &answer_of(&analysis).sentence;
    assert!(said.contains(": between ") && said.contains(" fewer and "), "{said}");
    assert!(said.contains(" more of ") && said.contains(" a second ("), "{said}");
}

#[test]
fn what_is_undecided_says_what_would_decide_it() {
    let analysis = measured(&POSTGRES_CHECKSUMS, 0.99, 0.4);
    let decision = answer_of(&analysis);
    assert_eq!(decision.answer, "undecided", "{decision:?}");
    assert!(decision.needs.as_ref().is_some_and(|needs| needs.contains("block")), "{decision:?}");
}

#[test]
fn report_leads_to_the_question_and_its_answer() {
    let analysis = measured(&POSTGRES_CHECKSUMS, 1.0, 0.01);
    let text = text(&analysis, Look { width: 80, colours: Colours(false) });
    let at = text.find(POSTGRES_CHECKSUMS.question).unwrap();
    assert!(text.get(at..).unwrap().contains("\n  yes"), "{text}");
}

#[test]
fn parts_of_decisions_that_are_not_known_and_those_without_are_left_out() {
    let mut run = csv::parse(b"run,a,b\n1,2,3\n2,2,3\n", "table", Better::Lower).unwrap();
    assert!(analyse(&run, 0.02).decisions.is_empty());
    for record in &mut run.experiments {
        record.decides =
            Some(DecidesRecord { decision: "of-later".to_owned(), ..Default::default() });
    }
    assert!(analyse(&run, 0.02).decisions.is_empty());
}

#[test]
fn each_name_is_of_one_decision() {
    let mut names: Vec<&str> = DECISIONS.iter().map(|decision| decision.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), DECISIONS.len());
}
