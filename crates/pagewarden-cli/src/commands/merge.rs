//! `pagewarden merge`: one report of all parts of a plan, as of one check.

use std::time::SystemTime;

use pagewarden::report::json::JsonReport;
use pagewarden::report::metrics::MetricsReport;
use pagewarden::report::nagios::NagiosReport;
use pagewarden::report::several::Several;
use pagewarden::report::text::TextReport;
use pagewarden::report::{Report as _, RunEnd};
use pagewarden_plan::merge::{Merge, Outcome};
use pagewarden_plan::plan::Plan;

use crate::args::plan as args;
use crate::commands::check::{Ran, exit_of};
use crate::exit::{self, Exit};
use crate::progress::Show;
use crate::replaced_file::{Content, ReplacedFile};
use crate::terminal::colours;

/// Runs the command.
pub fn run(arguments: &args::Merge) -> anyhow::Result<Exit> {
    exit::or_json("merge", arguments.json, || merge(arguments))
}

fn merge(arguments: &args::Merge) -> anyhow::Result<Exit> {
    let plan = Plan::read(&arguments.plan)?;
    let read = plan.read_paths();
    let place = arguments.metrics.as_deref();
    let metrics_file =
        place.map(|path| ReplacedFile::prepare(path, Content::Metrics, &read)).transpose()?;
    let merge = Merge::of(plan, &arguments.results);
    let show = Show::Nothing;
    let mut metrics = Vec::new();
    let mut reports = Several::default();
    if arguments.json {
        // The report of the check that it stands for.
        reports.add(JsonReport::begin(show.output(), "check")?);
    } else if arguments.nagios {
        reports.add(NagiosReport::new(show.output(), merge.targets()));
    } else {
        let report = TextReport::new(show.output(), colours());
        reports.add(if arguments.verbose { report.with_explanations() } else { report });
    }
    if let Some(file) = &metrics_file {
        reports.add(MetricsReport::new(&mut metrics, &file.previous));
    }
    let mut all = Ran::default();
    merge.report(&mut reports, &mut |outcome| match outcome {
        Outcome::Verified(verified) => all.add_verified(Some(verified), &arguments.demands),
        Outcome::Failed { error, .. } => {
            if !arguments.nagios {
                exit::report(&anyhow::Error::msg(error.to_owned()));
            }
            all.add_verified(None, &arguments.demands);
        }
    })?;
    let verdict = all.verdict();
    reports.end(&RunEnd {
        verdict,
        total: &all.total,
        opened: all.opened,
        protection_missed: all.missed,
        storage: None,
        drill: None,
        ended: SystemTime::now(),
    })?;
    drop(reports);
    if let Some(file) = metrics_file {
        file.replace(&metrics)?;
    }
    Ok(exit_of(arguments.nagios, &arguments.demands, verdict, &all.total, all.missed))
}
