//! `hvtui diff`: two runs side by side, from their recordings; with conditions it decides in CI.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::args::DiffArgs;
use crate::cli::errors::{Code, Failure, note, to_person, to_stdout};
use crate::cli::json::{VERSION, line};
use crate::cli::paths::Paths;
use crate::cli::progress_line::ReadingLine;
use crate::cli::recording;
use crate::cli::selection::Wanted;
use crate::domain::analysis::ChosenPart;
use crate::domain::comparison::{Comparison, Condition, Verdict, compare};
use crate::record::figures;
use crate::report::diff_text;

/// The object of `--json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    version: u32,
    a: &'a str,
    b: &'a str,
    /// What of both; `null`: all.
    part: Option<&'a ChosenPart>,
    #[serde(flatten)]
    comparison: &'a Comparison,
    /// What `--fail-if` came to, in its order.
    conditions: Vec<Judged>,
}

#[derive(Debug, Serialize)]
struct Judged {
    holds: Option<bool>,
    words: String,
}

/// Compares two runs.
pub fn run(args: &DiffArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    // before anything is read: a typing error must not take minutes to be told
    let conditions = args
        .fail_if
        .iter()
        .map(|text| {
            Condition::parse(text)
                .map_err(|error| Failure::usage(format!("--fail-if:\n{}", error.pointed(text))))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let wanted = Wanted::from(&args.part);
    wanted.check()?;
    let (a, b) =
        (recording::meant(&args.a, paths)?, recording::meant(args.b.as_deref().unwrap_or_default(), paths)?);
    if args.b.is_none() && a.path == b.path {
        let text = format!("{} is the newest run: name the one that is compared with it", args.a);
        return Err(Failure::usage(text));
    }
    let readers = [figures::open(&a.path)?, figures::open(&b.path)?];
    let [of_a, of_b] = [wanted.selection(&readers[0])?, wanted.selection(&readers[1])?];
    let mut reading = ReadingLine::begin();
    let sides = figures::sides([(&readers[0], &of_a), (&readers[1], &of_b)], &mut |share| {
        reading.show(share);
        true
    })?;
    drop(reading);
    let [a, b] = sides.ok_or_else(|| Failure::usage("the recordings were not read to their ends"))?;
    let comparison = compare(&a, &b);
    let verdicts: Vec<Verdict> = conditions.iter().map(|condition| condition.judge(&a, &b)).collect();
    if args.json {
        let conditions = verdicts.iter().map(|verdict| match verdict {
            Verdict::Holds(words) => Judged { holds: Some(true), words: words.clone() },
            Verdict::No(words) => Judged { holds: Some(false), words: words.clone() },
            Verdict::Unknown(words) => Judged { holds: None, words: words.clone() },
        });
        let told = Told {
            version: VERSION,
            a: &a.whole.run,
            b: &b.whole.run,
            part: a.whole.part.as_ref(),
            comparison: &comparison,
            conditions: conditions.collect(),
        };
        to_stdout(&line(&told)?)?;
    } else {
        to_person(&diff_text::render(&a.whole, &b.whole, &comparison))?;
    }
    decide(&verdicts)
}

/// 1 where a condition holds; one that can't be judged must not pass for one that does not hold.
fn decide(verdicts: &[Verdict]) -> Result<ExitCode, Failure> {
    let mut failed = false;
    for verdict in verdicts {
        match verdict {
            Verdict::Holds(words) => {
                failed = true;
                note(&format!("--fail-if failed: {words}"));
            }
            Verdict::No(words) => note(&format!("--fail-if passed: {words}")),
            Verdict::Unknown(_) => {}
        }
    }
    if failed {
        return Ok(ExitCode::from(1));
    }
    let unknown = verdicts.iter().find_map(|verdict| match verdict {
        Verdict::Unknown(words) => Some(words),
        _ => None,
    });
    match unknown {
        Some(words) => Err(Failure::new(Code::Data, format!("can't judge {words}"))),
        None => Ok(ExitCode::SUCCESS),
    }
}
