//! `hvtui bench allreduce`: what an allreduce costs, as nccl-tests measures it, on one host or many; and [`link`](self::links),
//! what the network between them gives.
//!
//! As a rank (with `RANK` in its environment) this process measures with the others; without, it starts ranks of
//! itself on this machine. Knows the communicator and nothing of how it moves bytes.

mod gpus;
mod link;
mod local;
mod measure;
mod pattern;
mod places;
mod sizes;
mod subject;
mod table;

use std::ffi::OsString;
use std::io::Write;

use serde::Serialize;

use super::env::RankEnv;
use super::error::WorkerError;
use super::group;
use super::report::Reporter;
use crate::collective::{CollectiveError, DType, Reduce, Transport, TransportPreference, bf16, f16};
use crate::domain::report::Report;
use gpus::{Card, OnGpus};
use measure::{Figures, Plan, measure};
use pattern::Number;
use places::{Place, Way};
use subject::{OnHosts, Subject};
use table::Row;

pub use link::LinkOptions;
pub use sizes::{bytes, steps};

/// The name that the report file gets.
const JOB: &str = "bench allreduce";

/// Which way bytes have to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via {
    /// The best there is.
    #[default]
    Auto,
    /// Shared memory; all ranks are on one host.
    Shm,
    /// TCP, within a host too.
    Tcp,
    /// NCCL between GPUs, one a rank; by the hosts' memory where the ranks' GPUs or NCCLs don't allow it.
    Nccl,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct BenchOptions {
    /// Ranks to start where this process is none.
    pub np: u32,
    /// Bytes a rank.
    pub sizes: Vec<usize>,
    /// Timed calls a size; `None`: as many as fit the budget.
    pub iterations: Option<u64>,
    /// Calls before them; `None`: half as many.
    pub warmup: Option<u64>,
    /// Milliseconds for the timed calls of a size.
    pub budget_ms: u64,
    /// Kind of number.
    pub dtype: DType,
    /// How ranks' values become one.
    pub how: Reduce,
    /// Which way bytes have to go.
    pub via: Via,
    /// Measure buffers of the group's memory. Where the group has none, those of the process's own are measured.
    pub registered: bool,
    /// Measure buffers of the process's own memory.
    pub private: bool,
    /// Rewrite the buffer before each call.
    pub fresh: bool,
    /// Calls a size whose results are checked.
    pub checks: u32,
    /// JSON objects, one a line, instead of a table.
    pub json: bool,
}

/// Measures. `arguments` are this process's own, for the ranks that it starts if it is none.
pub fn run(options: &BenchOptions, arguments: &[OsString], out: &mut dyn Write) -> Result<(), WorkerError> {
    if options.sizes.is_empty() {
        return Err(WorkerError::Option { option: "--begin", must_be: "at most --end" });
    }
    as_rank(options.np, arguments, |env| run_as(options, env, out))
}

/// Measures what the network gives. `arguments` as in [`run`].
pub fn links(options: &LinkOptions, arguments: &[OsString], out: &mut dyn Write) -> Result<(), WorkerError> {
    if std::env::var_os("RANK").is_none() && options.np < 2 {
        return Err(link::ONE_END);
    }
    as_rank(options.np, arguments, |env| link::run(options, env, out))
}

/// Does something as the rank that this process is; where it is none, as `np` ranks on this machine.
fn as_rank(
    np: u32,
    arguments: &[OsString],
    act: impl FnOnce(&RankEnv) -> Result<(), WorkerError>,
) -> Result<(), WorkerError> {
    if std::env::var_os("RANK").is_none() {
        if np == 0 {
            return Err(WorkerError::Option { option: "--np", must_be: "at least 1" });
        }
        return local::run(np, arguments);
    }
    local::end_with_starter()?;
    act(&RankEnv::from_process()?)
}

/// Measures as the given rank; rank 0 prints to `out`.
pub fn run_as(options: &BenchOptions, env: &RankEnv, out: &mut dyn Write) -> Result<(), WorkerError> {
    let mut reporter = Reporter::open(env.report.as_deref())?;
    let mut env = env.clone();
    if let Some(group) = &mut env.group {
        group.transport =
            if options.via == Via::Tcp { TransportPreference::Tcp } else { TransportPreference::Auto };
        // the threads that NCCL and the staging start would be pinned with this one
        group.pin = options.via != Via::Nccl;
    }
    let mut ranks = group::join(&env, &mut reporter, out)?;
    let mut place = Place::own(&env);
    let mut print = Printer { out: (env.rank == 0).then_some(out), json: options.json };
    let (rows, mut ranks) = if options.via == Via::Nccl {
        let card = gpus::all_or_none(&mut *ranks, Card::find(&env))?;
        place.card = card.name();
        let version = card.version();
        let mut ranks = OnGpus::open(&env, card, ranks)?;
        let staged = ranks.why_staged()?;
        let nccl = staged.is_none().then_some(version);
        let way = Way { transport: ranks.transport(), nccl, staged };
        let rows = table(options, &mut ranks, &place, &way, &mut reporter, &mut print)?;
        (rows, ranks.finalize()?)
    } else {
        let transport = ranks.transport().name();
        if options.via == Via::Shm && ranks.transport() != Transport::Shm {
            return Err(WorkerError::NotShared { transport });
        }
        let mut ranks = OnHosts(ranks);
        let way = Way { transport, nccl: None, staged: None };
        let rows = table(options, &mut ranks, &place, &way, &mut reporter, &mut print)?;
        (rows, ranks.0)
    };
    ranks.barrier()?;
    reporter.report(&Report::Done { weights: None })?;
    match rows.iter().map(Row::wrong).sum() {
        0 => Ok(()),
        values => Err(WorkerError::Wrong { values }),
    }
}

/// All sizes, with what stands above and below them.
fn table(
    options: &BenchOptions,
    ranks: &mut impl Subject,
    place: &Place,
    way: &Way,
    reporter: &mut Reporter,
    print: &mut Printer<'_>,
) -> Result<Vec<Row>, WorkerError> {
    let transport = Some(way.transport.to_owned());
    reporter.report(&Report::hello(JOB, transport, None))?;
    let places = ranks.with(|ranks| places::gather(ranks, place))?;
    print.head(&places, way)?;
    let rows = match options.dtype {
        DType::F32 => all::<f32>(options, ranks, print),
        DType::F64 => all::<f64>(options, ranks, print),
        DType::F16 => all::<f16>(options, ranks, print),
        DType::Bf16 => all::<bf16>(options, ranks, print),
        DType::I32 => all::<i32>(options, ranks, print),
        DType::I64 => all::<i64>(options, ranks, print),
    }?;
    print.foot(&rows)?;
    Ok(rows)
}

/// All sizes, in one kind of number.
fn all<T: Number>(
    options: &BenchOptions,
    ranks: &mut impl Subject,
    print: &mut Printer<'_>,
) -> Result<Vec<Row>, WorkerError> {
    let plan = Plan {
        how: options.how,
        iterations: options.iterations,
        warmup: options.warmup,
        budget: options.budget_ms.saturating_mul(1_000_000),
        fresh: options.fresh,
        checks: options.checks,
    };
    let world = ranks.with(|ranks| ranks.world());
    let mut rows = Vec::new();
    for bytes in &options.sizes {
        let count = (bytes / size_of::<T>()).max(1);
        let own = if options.registered { ranks.registered::<T>(count)? } else { None };
        let registered = own.map(|memory| measured(ranks, memory, &plan)).transpose()?;
        let private = if options.private || registered.is_none() {
            let memory = ranks.private::<T>(count)?;
            Some(measured(ranks, memory, &plan)?)
        } else {
            None
        };
        let row = Row { count, dtype: T::DTYPE, how: options.how, world, registered, private };
        print.row(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

fn measured<S: Subject, T: Number>(
    ranks: &mut S,
    mut memory: S::Memory<T>,
    plan: &Plan,
) -> Result<Figures, CollectiveError> {
    let figures = measure(ranks, &mut memory, plan)?;
    ranks.release(memory)?;
    Ok(figures)
}

/// Rank 0's words; those of other ranks go nowhere.
struct Printer<'a> {
    out: Option<&'a mut dyn Write>,
    json: bool,
}

/// The version of the lines of `--json`. It grows when a field changes its meaning or goes; a new field changes nothing.
const VERSION: u32 = 1;

/// A line of `--json`: the version of the form and what the line is stand in each.
#[derive(Serialize)]
struct Tagged<T> {
    version: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    line: T,
}

#[derive(Serialize)]
struct Head<'a> {
    program: &'static str,
    ranks: usize,
    hosts: usize,
    transport: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nccl: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    staged: Option<&'a str>,
    interface: String,
    places: Vec<(&'a str, &'a str)>,
}

#[derive(Serialize)]
struct Foot {
    wrong: u64,
    average_busbw: f64,
}

impl Printer<'_> {
    fn say(&mut self, line: &str) -> Result<(), WorkerError> {
        let Some(out) = &mut self.out else { return Ok(()) };
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(WorkerError::Output)
    }

    fn say_json(&mut self, kind: &'static str, line: &impl Serialize) -> Result<(), WorkerError> {
        let line = Tagged { version: VERSION, kind, line };
        let line = serde_json::to_string(&line).map_err(|error| WorkerError::Output(error.into()))?;
        self.say(&line)
    }

    fn head(&mut self, places: &[Place], way: &Way) -> Result<(), WorkerError> {
        if !self.json {
            let (places, table) = (places::head(places, way), table::head());
            return self.say(&format!("{places}\n#\n{table}"));
        }
        let head = Head {
            program: env!("CARGO_PKG_VERSION"),
            ranks: places.len(),
            hosts: places::hosts(places),
            transport: way.transport,
            nccl: way.nccl.as_deref(),
            staged: way.staged.as_deref(),
            interface: places::interfaces(places),
            places: places.iter().map(|place| (&*place.host, place.what())).collect(),
        };
        self.say_json("head", &head)
    }

    fn row(&mut self, row: &Row) -> Result<(), WorkerError> {
        if self.json { self.say_json("size", &row.line()) } else { self.say(&row.text()) }
    }

    fn foot(&mut self, rows: &[Row]) -> Result<(), WorkerError> {
        if self.json {
            let wrong = rows.iter().map(Row::wrong).sum();
            self.say_json("total", &Foot { wrong, average_busbw: table::average(rows) })
        } else {
            self.say(&table::foot(rows))
        }
    }
}
