//! `pack --estimate`: how large a pack would be, table by table; and what `pack`
//! says before it begins: how fast it could be read.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use pagewarden::database::{self, Step, Target};
use pagewarden::pack::{Content, Estimate, Forecast, Method, Sampling, SizeInterval, Strays, What};
use pagewarden::packing::{STANDARD_INPUT, codec, forecast_object, settings};
use pagewarden::system::MetadataExt as _;
use pagewarden::words::{bytes, counted, duration, printable};
use serde_json::{Value, json};

use crate::args::pack::Pack;
use crate::commands::pack::{request, told};
use crate::commands::storage::is_address;
use crate::exit::Exit;
use crate::progress::Show;

/// What is looked at; less of it where it takes long to compress.
const SAMPLE_BYTES: u64 = 64 << 20;
const SLOW_SAMPLE_BYTES: u64 = 24 << 20;
/// Levels of zstd from which on it does.
const SLOW_LEVEL: i32 = 10;
/// The number of tables that the text shows.
const TABLES_SHOWN: usize = 30;

/// A table, an index, or a file that belongs to neither.
struct Table {
    name: String,
    bytes: u64,
    stored: SizeInterval,
}

pub(super) fn run(arguments: &Pack, stop: &Arc<AtomicBool>, show: &Show) -> Result<Exit> {
    let begin = Instant::now();
    ensure!(
        !is_address(&arguments.source),
        "--estimate takes samples of files of this machine\n\
         hint: pagewarden pack --to null: reads a file in object storage"
    );
    let source = arguments.source.as_path();
    ensure!(
        source != Path::new(STANDARD_INPUT),
        "cannot estimate what comes from standard input: it is read once and in order\n\
         hint: name a folder or a file"
    );
    let request = request(arguments);
    let target = database::open(source, request.format)?;
    let is_live = target.description.live;
    let strays = if is_live { Strays::PassedOver } else { Strays::Refused };
    let content = Content::list(source, strays)?;
    let settings =
        settings(&request, &content, target.description.page_size, None).map_err(told)?;
    let is_slow = matches!(settings.method, Method::Zstd(level) if level >= SLOW_LEVEL);
    let sampling = Sampling {
        bytes_max: if is_slow { SLOW_SAMPLE_BYTES } else { SAMPLE_BYTES },
        jobs: request.options(stop).jobs.get(),
    };
    let names = names(target, source)?;
    let estimate = match Estimate::make(&content, &settings, sampling, stop) {
        Err(_) if stop.load(Ordering::Relaxed) => return stopped(arguments, begin, show),
        estimate => estimate?,
    };
    let tables = tables(&content, &names, &estimate);
    let forecast = request.measure(&content, &settings, stop).map_err(told)?;
    let elapsed = begin.elapsed();
    let mut out = show.output();
    if arguments.json {
        let object = object(&estimate, &tables, forecast.as_ref(), elapsed);
        writeln!(out, "{object}")?;
    } else {
        print_tables(&mut out, &tables)?;
        writeln!(out, "{}", total_words(&estimate, estimate.total()))?;
        let sampled = bytes(estimate.sampled_bytes);
        writeln!(out, "Looked at {sampled} in {}; nothing was written.", duration(elapsed))?;
        if let Some(forecast) = &forecast {
            writeln!(out, "{}", forecast_words(forecast))?;
        }
    }
    out.flush()?;
    Ok(if stop.load(Ordering::Relaxed) { Exit::Stopped } else { Exit::Fine })
}

/// The largest tables, and all others in one line.
fn print_tables(out: &mut impl Write, tables: &[Table]) -> io::Result<()> {
    writeln!(out, "{:>12}  {:>12}  table or file", "plain", "packed")?;
    for table in tables.iter().take(TABLES_SHOWN) {
        let (plain, packed) = (bytes(table.bytes), bytes(table.stored.expected));
        writeln!(out, "{plain:>12}  {packed:>12}  {}", printable(&table.name))?;
    }
    let Some(others) = tables.get(TABLES_SHOWN..).filter(|others| !others.is_empty()) else {
        return Ok(());
    };
    let sum = |of: fn(&Table) -> u64| others.iter().map(of).fold(0, u64::saturating_add);
    let (plain, packed) = (sum(|table| table.bytes), sum(|table| table.stored.expected));
    let others = counted(others.len() as u64, "other");
    writeln!(out, "{:>12}  {:>12}  {others}", bytes(plain), bytes(packed))
}

/// The result as JSON.
fn object(
    estimate: &Estimate,
    tables: &[Table],
    forecast: Option<&Forecast>,
    elapsed: Duration,
) -> Value {
    let with = |mut object: Value, more: Vec<(&str, Value)>| {
        if let Some(object) = object.as_object_mut() {
            object.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        object
    };
    let table = |table: &Table| {
        with(interval_object(table.bytes, table.stored), vec![("name", table.name.clone().into())])
    };
    let tables: Vec<Value> = tables.iter().map(table).collect();
    let estimated = with(
        interval_object(estimate.bytes, estimate.total()),
        vec![
            ("sampled_bytes", estimate.sampled_bytes.into()),
            ("is_exact", estimate.is_exact().into()),
            ("tables", tables.into()),
        ],
    );
    json!({
        "pagewarden": pagewarden::VERSION,
        "command": "pack",
        "verdict": "estimated",
        "output": null,
        "estimate": estimated,
        "prediction": forecast.map(forecast_object),
        "seconds": elapsed.as_secs_f64(),
    })
}

/// Of half a sample there is nothing to tell.
fn stopped(arguments: &Pack, begin: Instant, show: &Show) -> Result<Exit> {
    let mut out = show.output();
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "pack",
            "verdict": "incomplete",
            "output": null,
            "estimate": null,
            "error": "stopped early",
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "Stopped early; nothing was written.")?;
    }
    out.flush()?;
    Ok(Exit::Stopped)
}

fn interval_object(bytes: u64, stored: SizeInterval) -> Value {
    json!({
        "bytes": bytes,
        "expected_bytes": stored.expected,
        "low_bytes": stored.low,
        "high_bytes": stored.high,
    })
}

fn total_words(estimate: &Estimate, total: SizeInterval) -> String {
    let times = estimate.bytes as f64 / total.expected.max(1) as f64;
    let within = if estimate.is_exact() {
        "every block was looked at".to_owned()
    } else {
        format!("in 19 of 20 cases {} to {}", bytes(total.low), bytes(total.high))
    };
    let (plain, packed) = (bytes(estimate.bytes), bytes(total.expected));
    format!("Expected: {plain} become {packed}, {times:.2} times smaller ({within}).")
}

/// What the files of a target are called, by how the system knows them.
fn names(target: Target, source: &Path) -> Result<HashMap<(u64, u64), String>> {
    let mut names = HashMap::new();
    for step in target.steps {
        match step {
            Step::File(file) => {
                let Ok(metadata) = fs::symlink_metadata(&file.path) else { continue };
                let Some(object) = file.object else { continue };
                let name = match file.database {
                    Some(database) => format!("{object} in {database}"),
                    None => object.to_string(),
                };
                names.insert((metadata.dev(), metadata.ino()), name);
            }
            Step::Pages(_) | Step::Apart(_) => bail!(
                "cannot estimate {}: it is an archive, which is read once and in order\n\
                 hint: unpack it first",
                source.display()
            ),
            // Whatever else there is to say, it is said by `check`.
            Step::Passed(_) | Step::Wait(_) => break,
            _ => {}
        }
    }
    Ok(names)
}

/// Files by the table that they belong to, the largest first.
fn tables(
    content: &Content,
    names: &HashMap<(u64, u64), String>,
    estimate: &Estimate,
) -> Vec<Table> {
    let mut members: HashMap<String, Vec<usize>> = HashMap::new();
    for (number, entry) in content.entries.iter().enumerate() {
        if !matches!(entry.what, What::File { .. }) {
            continue;
        }
        let known = fs::symlink_metadata(content.path(number)).ok();
        let known = known.and_then(|metadata| names.get(&(metadata.dev(), metadata.ino())));
        let name = known.cloned().unwrap_or_else(|| entry.name.to_string_lossy().into_owned());
        members.entry(name).or_default().push(number);
    }
    let sized = |(name, entries): (String, Vec<usize>)| {
        let bytes = entries.iter().filter_map(|entry| content.entries.get(*entry));
        let bytes = bytes.fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes()));
        Table { name, bytes, stored: estimate.part(&entries) }
    };
    let mut tables: Vec<Table> = members.into_iter().map(sized).collect();
    tables.sort_by(|a, b| {
        b.stored.expected.cmp(&a.stored.expected).then_with(|| a.name.cmp(&b.name))
    });
    tables
}

/// `decode 0.6 GiB/s x 2 cores, disk 1.0 GiB/s: a cold scan will take 1.7 x plain;
/// --codec lz4: 0.9 x`.
pub(super) fn forecast_words(forecast: &Forecast) -> String {
    let Forecast { chosen, other, cores, .. } = forecast;
    let decode = speed(chosen.decode_bytes_per_second);
    let cores = counted(*cores as u64, "core");
    let (Some(read), Some(scan), Some(other_scan)) =
        (forecast.read_bytes_per_second, forecast.cold_scan(chosen), forecast.cold_scan(other))
    else {
        let ratio = chosen.ratio;
        return format!(
            "decode {decode} x {cores}, {ratio:.2} times smaller; the disk was not measured, so how \
             long a cold scan will take is not known"
        );
    };
    format!(
        "decode {decode} x {cores}, disk {}: a cold scan will take {} x plain; --codec {}: {} x",
        speed(read),
        times(scan),
        codec(other.method),
        times(other_scan)
    )
}

fn speed(bytes_per_second: f64) -> String {
    let mebibytes = bytes_per_second / f64::from(1 << 20);
    if mebibytes >= 1000.0 {
        return format!("{:.1} GiB/s", mebibytes / 1024.0);
    }
    format!("{mebibytes:.0} MiB/s")
}

fn times(scan: f64) -> String {
    if scan < 0.1 { format!("{scan:.2}") } else { format!("{scan:.1}") }
}
