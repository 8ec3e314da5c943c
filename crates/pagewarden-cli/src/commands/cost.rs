//! `pagewarden cost`: runs experiments, or analyses what was run, and reports.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, bail};
use pagewarden::words::utc;
use pagewarden_lab::cost::analyse::analyse;
use pagewarden_lab::cost::design::{Order, Plan};
use pagewarden_lab::cost::experiment::{Better, Experiment, Form};
use pagewarden_lab::cost::experiments::EXPERIMENTS;
use pagewarden_lab::cost::noise::Sensors;
use pagewarden_lab::cost::own_program::{self, IS_ARM, OwnProgram};
use pagewarden_lab::cost::record::{self, Run, RunRecord, Writer};
use pagewarden_lab::cost::report::text::{Look, text};
use pagewarden_lab::cost::report::{html, json};
use pagewarden_lab::cost::result::Analysis;
use pagewarden_lab::cost::samples::VERSION;
use pagewarden_lab::cost::{csv, machine, run};
use pagewarden_scratch::home;

use crate::args::cost::{Analyse, Cost, CostCommand};
use crate::exit::{self, Exit};
use crate::replaced_file::{Content, ReplacedFile};
use crate::signals::stop_on_signals;
use crate::terminal::{self, print};

mod show;

/// The margin where no option gives one.
const MARGIN: f64 = 0.02;
/// No table of runs is larger.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// A run, with how it came to its end.
struct Measured {
    run: Run,
    margin: f64,
    stopped: bool,
    /// How to go on with it, if it was stopped.
    hint: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &Cost) -> anyhow::Result<Exit> {
    exit::or_json("cost", arguments.shown.json, || report(arguments, Instant::now()))
}

/// True in a process that this command has started to run one arm of an experiment.
pub fn is_arm() -> bool {
    std::env::var_os(IS_ARM).is_some()
}

/// Runs that arm.
pub fn run_arm() -> anyhow::Result<Exit> {
    own_program::serve(io::stdin(), io::stdout())?;
    Ok(Exit::Fine)
}

fn report(arguments: &Cost, begin: Instant) -> anyhow::Result<Exit> {
    if arguments.list {
        return list(arguments, begin);
    }
    let inputs: Vec<PathBuf> = match &arguments.command {
        Some(CostCommand::Analyse(analyse)) => vec![analyse.file.clone()],
        None => Vec::new(),
    };
    // What is to be written is looked at before hours are spent.
    let page = arguments
        .html
        .as_deref()
        .map(|path| ReplacedFile::prepare(path, Content::Html, &inputs))
        .transpose()?;
    let measured = match &arguments.command {
        Some(CostCommand::Analyse(analyse)) => read(analyse, arguments)?,
        None => measure(arguments)?,
    };
    let analysis = analyse(&measured.run, measured.margin);
    if arguments.shown.json {
        let object = json::json(&analysis, &measured.run, begin.elapsed().as_secs_f64())?;
        print(&format!("{object}\n"))?;
    } else {
        let look = Look { width: terminal::width(), colours: terminal::colours() };
        print(&text(&analysis, look))?;
    }
    let exit = exit(arguments, &analysis, measured.stopped);
    if let Some(hint) = &measured.hint {
        tell(hint);
    }
    match page.map_or(Ok(()), |page| page.replace(html::page(&analysis, &measured.run).as_bytes()))
    {
        Ok(()) => Ok(exit),
        Err(error) => {
            let unable = exit::report(&error);
            Ok(if exit == Exit::Fine { unable } else { exit })
        }
    }
}

fn exit(arguments: &Cost, analysis: &Analysis, stopped: bool) -> Exit {
    if stopped {
        Exit::Stopped
    } else if arguments.strict && analysis.verdict == "worse" {
        Exit::Wrong
    } else if analysis.incomplete {
        Exit::Unable
    } else {
        Exit::Fine
    }
}

fn list(arguments: &Cost, begin: Instant) -> anyhow::Result<Exit> {
    if arguments.shown.json {
        let object = json::list(EXPERIMENTS, begin.elapsed().as_secs_f64());
        print(&format!("{object}\n"))?;
        return Ok(Exit::Fine);
    }
    let descriptions = || EXPERIMENTS.iter().map(|experiment| experiment.description());
    let wide = descriptions().map(|one| one.name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        descriptions().map(|one| format!("{:<wide$}  {}\n", one.name, one.title)).collect();
    print(&lines.concat())?;
    Ok(Exit::Fine)
}

/// Reads what was run elsewhere or before.
fn read(wanted: &Analyse, arguments: &Cost) -> anyhow::Result<Measured> {
    if !arguments.names.is_empty() {
        bail!("analyse reads a file and runs no experiment");
    }
    let better = if wanted.better == "higher" { Better::Higher } else { Better::Lower };
    let standard_input = wanted.file == Path::new("-");
    let run = if standard_input {
        if io::stdin().is_terminal() {
            bail!("standard input is a terminal\nhint: pipe a table into it, or name a file");
        }
        let mut bytes = Vec::new();
        io::stdin()
            .take(TABLE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        csv::parse(&bytes, "table", better).context("cannot analyse standard input")?
    } else if is_run(&wanted.file) {
        record::read(&wanted.file)?.0
    } else {
        csv::read(&wanted.file, better)?
    };
    let planned = if run.record.format > 0 { run.record.plan.margin } else { MARGIN };
    let margin = arguments.margin.unwrap_or(planned);
    Ok(Measured { run, margin, stopped: false, hint: None })
}

/// True if a file holds samples of a run: by its first bytes, not by its name.
fn is_run(path: &Path) -> bool {
    let mut begin = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin.starts_with(b"{\"line\"")
}

/// Runs experiments, or goes on with a run.
fn measure(arguments: &Cost) -> anyhow::Result<Measured> {
    if let Some(directory) = &arguments.scratch {
        home::choose_directory(directory)?;
    }
    let (run, writer) = match &arguments.resume {
        Some(name) => resume(name)?,
        None => begin(arguments)?,
    };
    let experiments = run.record.experiments.iter().map(|name| named(name));
    let experiments: Vec<&dyn Experiment> = experiments.collect::<Result<_, _>>()?;
    let margin = arguments.margin.unwrap_or(run.record.plan.margin);
    let path = writer.path.clone();
    let stop = stop_on_signals()?;
    let mut show = show::Show::choose(arguments.shown.quiet, arguments.shown.progress);
    let request = run::Request {
        experiments: &experiments,
        run,
        writer,
        stop: std::sync::Arc::clone(&stop),
        program: OwnProgram { arm: &[], has_commands: true },
        sensors: &|| {
            let sensors = Sensors::start();
            Box::new(|| sensors.stop())
        },
    };
    let run = run::run(request, &mut |event| show.tell(event));
    show.end();
    let run = run?;
    let stopped = stop.load(Ordering::Relaxed) && !run.ended;
    let shown = path.display();
    let hint = if stopped {
        Some(format!("stopped early; to go on: pagewarden cost --continue {shown}"))
    } else {
        (!arguments.shown.quiet).then(|| format!("every sample is in {shown}"))
    };
    Ok(Measured { run, margin, stopped, hint })
}

fn named(name: &str) -> anyhow::Result<&'static dyn Experiment> {
    let known = EXPERIMENTS.iter().find(|experiment| experiment.description().name == name);
    known.copied().with_context(|| {
        let names: Vec<&str> =
            EXPERIMENTS.iter().map(|experiment| experiment.description().name).collect();
        format!("there is no experiment '{name}'\nhint: there are {}", names.join(", "))
    })
}

/// Plans a run and opens its file.
fn begin(arguments: &Cost) -> anyhow::Result<(Run, Writer)> {
    let mut experiments: Vec<&dyn Experiment> = if arguments.seeds {
        EXPERIMENTS.to_vec()
    } else {
        arguments.names.iter().map(|name| named(name)).collect::<anyhow::Result<_>>()?
    };
    // Named twice is meant once.
    let mut seen: Vec<&str> = Vec::new();
    experiments.retain(|experiment| {
        let name = experiment.description().name;
        let new = !seen.contains(&name);
        seen.push(name);
        new
    });
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let plan = Plan {
        form: if arguments.short || arguments.seeds { Form::Short } else { Form::Whole },
        seed: arguments.seed.unwrap_or(since.as_secs()),
        blocks: arguments.blocks,
        order: match arguments.order.as_str() {
            "abba" => Order::Abba,
            "duet" => Order::Duet,
            _ => Order::Random,
        },
        control: !arguments.no_control,
        sequential: arguments.sequential || arguments.budget.is_some(),
        budget_seconds: arguments.budget.map(|budget| budget.as_secs().max(1)),
        margin: arguments.margin.unwrap_or(MARGIN),
    };
    let record = RunRecord {
        format: VERSION,
        pagewarden: pagewarden::VERSION.to_owned(),
        begun: utc(now),
        machine: machine::describe(),
        plan,
        experiments: Vec::new(),
    };
    let folder = arguments.out.clone().unwrap_or_else(state_folder);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let name = format!("{}{:02}", record.begun, since.as_secs() % 60);
    let writer = Writer::create(&run::path_in(&folder, &name))?;
    Ok((run::head(&experiments, record), writer))
}

/// Where runs are kept unless something else is asked for.
pub fn state_folder() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = from("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| from("HOME").map(|home| Path::new(&home).join(".local/state")));
    state.map_or_else(|| PathBuf::from("."), |state| state.join("pagewarden"))
}

/// Opens a run again: a path, or the name of one in the usual folder.
fn resume(name: &Path) -> anyhow::Result<(Run, Writer)> {
    let kept = state_folder().join(name);
    let candidates = [name.to_owned(), kept.clone(), kept.with_extension("jsonl")];
    let path = candidates.iter().find(|path| path.is_file()).with_context(|| {
        format!("there is no run {} here or in {}", name.display(), state_folder().display())
    })?;
    let (run, whole) = record::read(path)?;
    Ok((run, Writer::resume(path, whole)?))
}

/// Says something that is no result.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
