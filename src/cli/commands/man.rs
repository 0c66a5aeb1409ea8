//! `hvtui man`: one page for the program and all its commands.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::args::Cli;
use crate::cli::errors::{Failure, to_stdout};

/// Prints the manual page, for `man`.
pub fn run() -> Result<ExitCode, Failure> {
    let page = page().map_err(|error| Failure::bug(format!("can't write the manual page: {error}")))?;
    to_stdout(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

fn page() -> std::io::Result<Vec<u8>> {
    let mut program = Cli::command();
    program.build();
    let mut out = Vec::new();
    let man = Man::new(program.clone()).manual("hvtui manual").section("1");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    out.extend(body(&man)?.bytes());
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        section(command, &mut out)?;
    }
    out.extend(notes(&man)?);
    man.render_version_section(&mut out)?;
    Ok(out)
}

/// A command's own section, with its subcommands after it.
fn section(command: &Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_uppercase();
    let man = Man::new(command.clone());
    let text = body(&man)? + &String::from_utf8_lossy(&notes(&man)?);
    // Headings of the page become headings within the command's section.
    let text = text.replace("\n.SH ", "\n.SS ");
    let text = text.strip_prefix(".SH ").map_or_else(|| text.clone(), |rest| format!(".SS {rest}"));
    out.extend(format!(".SH \"{name}\"\n{text}").bytes());
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    subcommands.into_iter().try_for_each(|sub| section(sub, out))
}

/// How a command is written, what it does, and its options.
fn body(man: &Man) -> std::io::Result<String> {
    let (mut synopsis, mut description, mut options) = (Vec::new(), Vec::new(), Vec::new());
    man.render_synopsis_section(&mut synopsis)?;
    man.render_description_section(&mut description)?;
    man.render_options_section(&mut options)?;
    let [synopsis, description, options] =
        [synopsis, description, options].map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(with_values(&synopsis, &options) + &description + &options)
}

/// The synopsis with what each option takes, as it stands before the option's own text.
fn with_values(synopsis: &str, options: &str) -> String {
    let mut out = synopsis.to_owned();
    for line in options.lines().filter(|line| line.starts_with(r"\fB\-")) {
        let Some((flag, rest)) = line.rsplit_once(r"\fB").and_then(|(_, last)| last.split_once(r"\fR"))
        else {
            continue;
        };
        let value = rest.split(" [default").next().unwrap_or_default();
        for end in [']', '>'] {
            out = out.replacen(&format!(r"\fB{flag}\fR{end}"), &format!(r"\fB{flag}\fR{value}{end}"), 1);
        }
    }
    out
}

/// What stands at the end of the help, line by line as it is there.
fn notes(man: &Man) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render_extra_section(&mut text)?;
    let text = String::from_utf8_lossy(&text).replacen(".SH EXTRA\n", ".SH NOTES\n.nf\n", 1);
    Ok(format!("{text}.fi\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synopsis_says_what_an_option_takes() {
        let options = ".SH OPTIONS\n.TP\n\\fB\\-\\-hosts\\fR \\fI<FILE>\\fR\nHosts\n.TP\n\\fB\\-n\\fR, \\fB\\-\\-interval\\fR \\fI<S>\\fR \
                       [default: 1]\nEvery\n.TP\n\\fB\\-\\-once\\fR\nOnce\n";
        let synopsis = r"x [\fB\-\-hosts\fR] [\fB\-\-once\fR] [\fB\-n\fR|\fB\-\-interval\fR] <\fIRUN\fR>";
        let with = r"x [\fB\-\-hosts\fR \fI<FILE>\fR] [\fB\-\-once\fR] [\fB\-n\fR|\fB\-\-interval\fR \fI<S>\fR] <\fIRUN\fR>";
        assert_eq!(with_values(synopsis, options), with);
    }
}
