//! Questions of ssh on the terminal from which the command was started, or by the program of `SSH_ASKPASS`.
//!
//! One question after the other on `/dev/tty`, so that pipes for input and output stay free. What is typed is not shown
//! unless it may be; the terminal's settings come back also when a signal ends the command.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use zeroize::Zeroizing;

use super::errors::{Code, Failure, note, to_person};
use super::signals::{self, Signals};
use crate::domain::question::{ASKED_AGAIN, Answer, Question, trusts};
use crate::domain::secret::Secret;
use crate::ssh::{Asked, Prompter, Questions};

const TTY: &str = "/dev/tty";
/// The longest answer, bytes.
const LONGEST: usize = 4096;

/// Asks on standard input whether to go on; `yes` answers it.
///
/// # Errors
/// The answer is no, or standard input is no terminal.
pub(crate) async fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nothing was changed: standard input is not a terminal: say --yes to go on",
        ));
    }
    to_person(&format!("{question} [y/N] "))?;
    if is_yes().await { Ok(()) } else { Err(Failure::new(Code::Permission, "nothing was changed")) }
}

/// Whether the next line on standard input is a yes.
pub(crate) async fn is_yes() -> bool {
    line_of_input().await.is_some_and(|text| matches!(text.trim(), "y" | "Y" | "yes"))
}

/// Whether a host key is trusted, by the next lines on standard input: asks until one is an answer.
///
/// # Errors
/// Standard output can't be written.
pub(crate) async fn trusts_key(fingerprint: &str) -> Result<bool, Failure> {
    while let Some(line) = line_of_input().await {
        match trusts(&line, fingerprint) {
            Some(trusts) => return Ok(trusts),
            None => to_person(&format!("{ASKED_AGAIN}: "))?,
        }
    }
    Ok(false)
}

/// The next line on standard input; `None` at its end. Links go on while a person thinks.
async fn line_of_input() -> Option<String> {
    let read = || {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).ok().filter(|count| *count > 0).map(|_| line)
    };
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// A way to ask the user who started the command. Needs a tokio runtime.
pub(crate) fn person() -> Prompter {
    let way = match (askpass(), open()) {
        (Some((program, true)), _) | (Some((program, false)), Err(_)) => Way::Program(program),
        (_, Ok(_)) => Way::Terminal,
        (None, Err(_)) => return Prompter::unavailable("there is no terminal to ask on"),
    };
    let (prompter, questions) = Prompter::new();
    tokio::spawn(serve(way, questions));
    prompter
}

#[derive(Debug)]
enum Way {
    Terminal,
    Program(OsString),
}

/// The program of `SSH_ASKPASS`, and whether it is preferred to the terminal; OpenSSH's rules.
fn askpass() -> Option<(OsString, bool)> {
    let program = std::env::var_os("SSH_ASKPASS").filter(|program| !program.is_empty())?;
    match std::env::var("SSH_ASKPASS_REQUIRE").as_deref() {
        Ok("never") => None,
        Ok("force" | "prefer") => Some((program, true)),
        _ => std::env::var_os("DISPLAY").filter(|display| !display.is_empty()).map(|_| (program, false)),
    }
}

fn open() -> std::io::Result<File> {
    let flags = OFlags::NOCTTY.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(TTY)
}

async fn serve(way: Way, mut questions: Questions) {
    // Taken over with the first question: until then signals end the command by themselves.
    let mut signals = None;
    loop {
        let asked = tokio::select! {
            code = interrupted(&mut signals) => {
                leave_unless_heard(code);
                continue;
            }
            asked = questions.recv() => asked,
        };
        match asked {
            None => loop {
                // the signals stay ours
                leave_unless_heard(interrupted(&mut signals).await);
            },
            Some(Asked::Note(text)) => note(&text),
            Some(Asked::Question(question, sender)) => {
                if signals.is_none() {
                    signals = Signals::beside().ok();
                }
                let answer = match &way {
                    Way::Program(program) => by_program(program, &question, &mut signals).await,
                    Way::Terminal => by_terminal(question, &mut signals).await,
                };
                // the connection may be gone meanwhile
                let _ = sender.send(answer);
            }
        }
    }
}

async fn by_terminal(question: Question, signals: &mut Option<Signals>) -> Answer {
    let (cancelled, cancel) = match rustix::pipe::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return Answer::Unable(format!("no pipe: {error}")),
    };
    let mut asking = tokio::task::spawn_blocking(move || on_terminal(&question, &cancelled));
    let answer = tokio::select! {
        answer = &mut asking => answer,
        code = interrupted(signals) => {
            drop(cancel);
            let answer = asking.await;
            leave_unless_heard(code);
            answer
        }
    };
    answer.unwrap_or(Answer::No)
}

async fn interrupted(signals: &mut Option<Signals>) -> u8 {
    match signals {
        Some(signals) => signals.next().await.code(),
        None => std::future::pending().await,
    }
}

/// Ends the program as the signal would have, where the command itself does not listen for signals.
fn leave_unless_heard(code: u8) {
    if !signals::are_heard() {
        restore();
        std::process::exit(i32::from(code));
    }
}

async fn by_program(program: &OsString, question: &Question, signals: &mut Option<Signals>) -> Answer {
    let text = [question.lines(), vec![question.prompt()]].concat().join("\n");
    let mut command = tokio::process::Command::new(program);
    command.arg(text).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = tokio::select! {
        output = command.output() => output,
        code = interrupted(signals) => {
            leave_unless_heard(code);
            return Answer::No;
        }
    };
    match output {
        Ok(output) => {
            let said = Zeroizing::new(output.stdout);
            // the same program would say the same again
            let said = output.status.success().then(|| question.answer(line(&said))).flatten();
            said.unwrap_or(Answer::No)
        }
        Err(error) => Answer::Unable(format!("SSH_ASKPASS can't be run: {error}")),
    }
}

/// Asks on the terminal; ends without an answer when `cancel` is closed.
fn on_terminal(question: &Question, cancel: &OwnedFd) -> Answer {
    let mut tty = match open() {
        Ok(tty) => tty,
        Err(error) => return Answer::Unable(format!("{TTY} can't be opened: {error}")),
    };
    // A program in the background that touches the terminal is stopped without a word.
    if tcgetpgrp(&tty).is_ok_and(|front| front != rustix::process::getpgrp()) {
        return Answer::Unable("hvtui is not in the foreground of its terminal".to_owned());
    }
    if !question.echo() {
        hide(&tty);
    }
    // in the place of a line that tells how far something is
    let mut text = format!("\r\x1b[K{}\n{} ", question.lines().join("\n"), question.prompt());
    let answer = loop {
        match tty.write_all(text.as_bytes()).and_then(|()| read_line(&mut tty, cancel)) {
            Ok(Some(typed)) => match question.answer(typed) {
                Some(answer) => break Ok(answer),
                None => text = format!("{ASKED_AGAIN}: "),
            },
            Ok(None) => break Ok(Answer::No),
            Err(error) => break Err(error),
        }
    };
    if !question.echo() {
        // the line end that was typed was not shown; a terminal that is gone shows nothing
        let _ = tty.write_all(b"\n");
        restore();
    }
    answer.unwrap_or_else(|error| Answer::Unable(format!("{TTY}: {error}")))
}

/// The terminal whose input is hidden, and its settings before.
static HIDDEN: Mutex<Option<(File, Termios)>> = Mutex::new(None);

fn hidden() -> MutexGuard<'static, Option<(File, Termios)>> {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on what is typed is not shown.
fn hide(tty: &File) {
    if let (Ok(before), Ok(tty)) = (tcgetattr(tty), tty.try_clone()) {
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        // What was typed before the question is no answer to it. A terminal that can't do it shows the answer.
        let _ = tcsetattr(&tty, OptionalActions::Flush, &quiet);
        *hidden() = Some((tty, before));
    }
}

/// Gives the terminal back, if a question has it. To be called before the program ends.
pub(crate) fn restore() {
    if let Some((tty, before)) = hidden().take() {
        // there is nowhere to report it
        let _ = tcsetattr(&tty, OptionalActions::Now, &before);
    }
}

/// One line; `None` at the end of input, and when `cancel` is closed.
fn read_line(tty: &mut File, cancel: &OwnedFd) -> std::io::Result<Option<Secret>> {
    let mut typed = Zeroizing::new(vec![0; LONGEST]);
    let mut length = 0;
    loop {
        let mut fds = [PollFd::new(&*tty, PollFlags::IN), PollFd::new(cancel, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other.map(drop)?,
        }
        if !fds[1].revents().is_empty() {
            return Ok(None);
        }
        length += match tty.read(typed.get_mut(length..).unwrap_or_default()) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let so_far = typed.get(..length).unwrap_or_default();
        if so_far.ends_with(b"\n") || length == LONGEST {
            return Ok(Some(line(so_far)));
        }
    }
}

/// The first line of some text.
fn line(bytes: &[u8]) -> Secret {
    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len());
    let mut text = Secret::default();
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).chars().for_each(|c| text.push(c));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_first_line() {
        for (bytes, text) in [(&b"a b\n"[..], "a b"), (b"x\r\ny", "x"), (b"", ""), (b"all", "all")] {
            assert_eq!(line(bytes).reveal(), text);
        }
    }
}
