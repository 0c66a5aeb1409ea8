//! `hvtui export`: a run in another program's format.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::args::ExportArgs;
use crate::cli::commands::ui::here_zone;
use crate::cli::errors::{Code, Failure, note, written};
use crate::cli::paths::Paths;
use crate::cli::progress_line::ReadingLine;
use crate::cli::selection::Wanted;
use crate::cli::{cast, recording, whole_file};
use crate::clock;
use crate::domain::run::RunSpec;
use crate::record::export::{Exported, Selection, Target};
use crate::record::{Error, Player, Reader};

/// The format that may have screens.
const CAST: &str = "asciicast";

/// Writes the export.
pub fn run(args: &ExportArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let wanted = Wanted::from(&args.selection);
    wanted.check()?;
    if args.screens.is_some() && args.to.name != CAST {
        return Err(Failure::usage(format!("--screens is for --to {CAST}: {} has no screens", args.to.name)));
    }
    let meant = recording::meant(&args.run, paths)?;
    let reader = Reader::open(&meant.path)?;
    let selection = wanted.selection(&reader)?;
    if let Some(damage) = reader.integrity().damage() {
        note(&format!("run {}: {damage}", args.run));
    }
    let exported = match &args.output {
        Some(path) => to_file(args, &reader, path, &selection)?,
        None => match to_stdout(args, &reader, &selection)? {
            Some(exported) => exported,
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    if exported.recorded == 0 && !exported.truncated {
        note(&format!(
            "run {}: nothing for {} in this selection; the export is empty",
            args.run, args.to.name
        ));
    }
    if exported.truncated {
        note(&format!("cut after {} events by --max-events", exported.events));
    }
    if exported.missing_chunks > 0 {
        note(&format!("{} damaged chunks of the recording are left out", exported.missing_chunks));
    }
    if exported.unaligned_steps > 0 {
        let is_imported = reader.spec().is_some_and(RunSpec::is_imported);
        let text = if is_imported {
            "steps are placed by the clocks of their traces, which were never compared"
        } else {
            "steps are placed by their arrival: their hosts' clocks were never compared"
        };
        note(&format!("{} {text}", exported.unaligned_steps));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what the selection takes.
fn export(
    args: &ExportArgs,
    reader: &Reader,
    to: &mut dyn Write,
    selection: &Selection,
) -> Result<Exported, Error> {
    let Some(size) = args.screens else {
        // not between rows on the same terminal
        let is_apart = args.output.is_some() || !io::stdout().is_terminal();
        let mut line = is_apart.then(ReadingLine::begin);
        return args.to.export(reader, to, selection, &mut |share| {
            if let Some(line) = &mut line {
                line.show(share);
            }
        });
    };
    let player = Player::open(reader.path())?;
    let told = cast::write(player, to, selection, size, here_zone(clock::now()))?;
    Ok(Exported {
        events: told.frames,
        recorded: told.frames,
        truncated: told.truncated,
        ..Exported::default()
    })
}

/// To standard output; `None` when its reader went away.
fn to_stdout(args: &ExportArgs, reader: &Reader, selection: &Selection) -> Result<Option<Exported>, Failure> {
    let stdout = io::stdout().lock();
    if args.to.target != Target::Text && stdout.is_terminal() {
        let what = if args.to.target == Target::File { "file" } else { "folder" };
        let text = format!("{} is not text: name a {what} with --output, or a pipe", args.to.name);
        return Err(Failure::usage(text));
    }
    let mut out = BufWriter::new(stdout);
    match export(args, reader, &mut out, selection) {
        Ok(exported) => Ok(written(out.flush())?.then_some(exported)),
        Err(Error::Write(error)) => {
            // what is buffered can't be written either
            let _ = out.into_parts();
            written(Err(error)).map(|_| None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Into a file beside the target first: an export that fails leaves what was there.
fn to_file(
    args: &ExportArgs,
    reader: &Reader,
    output: &Path,
    selection: &Selection,
) -> Result<Exported, Failure> {
    let (path, part) = target(args, reader, output)?;
    let writing = part.as_deref().unwrap_or(&path);
    let exported = write(args, reader, (writing, &path), selection).and_then(|exported| {
        if let Some(part) = &part {
            fs::rename(part, &path).map_err(failed(&path))?;
        }
        Ok(exported)
    });
    if let (Err(_), Some(part)) = (&exported, &part) {
        let _ = fs::remove_file(part);
    }
    exported
}

/// The file that is written, and where it is written first; `None` for a pipe or a device, which nothing may replace.
fn target(args: &ExportArgs, reader: &Reader, output: &Path) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    if whole_file::is_special(output) {
        return Ok((output.to_owned(), None));
    }
    let output = &whole_file::followed(output);
    if let Some(name) = args.to.target.file_name(reader) {
        fs::create_dir_all(output).map_err(failed(output))?;
        // its reader takes every file whose name begins like it
        return Ok((output.join(&name), Some(output.join(format!(".part-{}", std::process::id())))));
    }
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    Ok((output.to_owned(), Some(output.with_file_name(name))))
}

/// Writes a file; `meant` is the one that it becomes, which errors name.
fn write(
    args: &ExportArgs,
    reader: &Reader,
    (path, meant): (&Path, &Path),
    selection: &Selection,
) -> Result<Exported, Failure> {
    let opened =
        if whole_file::is_special(path) { whole_file::open_special(path) } else { File::create(path) };
    let mut file = BufWriter::new(opened.map_err(failed(meant))?);
    match export(args, reader, &mut file, selection) {
        Ok(exported) => file.flush().map_err(failed(meant)).map(|()| exported),
        Err(Error::Write(error)) => Err(failed(meant)(error)),
        Err(error) => Err(error.into()),
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(Code::from(&error), format!("{}: {error}", path.display()))
}
