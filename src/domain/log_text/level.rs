//! How serious a line is, by the formats of the usual loggers: Python's `logging` and `warnings`, glog and absl, NCCL,
//! TensorFlow's C++ side, Rust, tracebacks. Pure.

use serde::{Deserialize, Serialize};

/// How serious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Level {
    /// The line names none.
    #[default]
    Unknown = 0,
    /// Details for debugging.
    Debug = 1,
    /// The ordinary course.
    Info = 2,
    /// Look.
    Warning = 3,
    /// Something failed.
    Error = 4,
    /// The program ends by it.
    Fatal = 5,
}

/// How many words at the head of a line are searched: «error» in the middle of a sentence (`loss error 0.1`) is no level.
const HEAD_WORDS: usize = 10;
/// The same in bytes, for what Python's `warnings` writes behind a path.
const HEAD_BYTES: usize = 300;
/// Lines that a traceback has at most: what comes later is none, whatever it looks like.
const BLOCK_LINES: u32 = 1000;

impl Level {
    /// The level that a line as it was printed names by itself; [`Level::Unknown`] where it names none.
    pub fn of(text: &str) -> Self {
        Self::of_plain(&super::plain(text))
    }

    fn of_plain(text: &str) -> Self {
        let mut before = "";
        for (at, word) in words(text).take(HEAD_WORDS).enumerate() {
            let lower = at == 0 || matches!(before, "level" | "lvl" | "severity") || is_bracketed(text, word);
            if let Some(level) = by_word(word, lower).or_else(|| by_letter(text, word)) {
                return level;
            }
            before = word;
        }
        let end = super::floor_boundary(text, HEAD_BYTES);
        let warns = |at: usize| {
            text[..at].ends_with(|c: char| c.is_ascii_alphabetic())
                && !text[..at].ends_with(' ')
                && text[at..].starts_with("Warning: ")
        };
        // of C's assert and of CUDA's in a kernel
        let has_failed = |at: usize| text[at..].contains("failed");
        if text[..end].match_indices("Warning: ").any(|(at, _)| warns(at)) {
            Self::Warning
        } else if text.find("Assertion `").is_some_and(has_failed) {
            Self::Error
        } else {
            Self::Unknown
        }
    }

    /// One letter for a column; a blank where there is nothing to look at.
    pub fn letter(self) -> char {
        match self {
            Self::Unknown | Self::Debug | Self::Info => ' ',
            Self::Warning => 'W',
            Self::Error => 'E',
            Self::Fatal => 'F',
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// `[error]`, `<warning>`, `error:` at the head of a line.
fn is_bracketed(text: &str, word: &str) -> bool {
    let at = word.as_ptr() as usize - text.as_ptr() as usize;
    let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
    let after = text.as_bytes().get(at + word.len());
    matches!((before, after), (Some(b'['), Some(b']')) | (Some(b'<'), Some(b'>')))
}

/// By a whole word. One in small letters is a level only where its place says so.
fn by_word(word: &str, lower: bool) -> Option<Level> {
    Some(match word {
        "DEBUG" | "TRACE" => Level::Debug,
        "INFO" | "NOTICE" => Level::Info,
        "WARN" | "WARNING" | "Warning" | "warning" => Level::Warning,
        "ERROR" | "Error" | "Traceback" => Level::Error,
        "FATAL" | "CRITICAL" | "panicked" => Level::Fatal,
        "debug" | "trace" if lower => Level::Debug,
        "info" | "notice" if lower => Level::Info,
        "warn" if lower => Level::Warning,
        "error" if lower => Level::Error,
        "fatal" | "critical" if lower => Level::Fatal,
        // Python names its exceptions so: `RuntimeError: CUDA out of memory`
        word if word.len() > 5 && (word.ends_with("Error") || word.ends_with("Exception")) => Level::Error,
        word if word.len() > 7 && word.ends_with("Warning") => Level::Warning,
        _ => return None,
    })
}

/// By one letter: `E1121 14:32:07.310` of glog, `E723 01:58:45.667` of PyTorch, `E20261121 …` of its newer versions, and `…14:32:07.310: E file.cc` of
/// TensorFlow.
fn by_letter(text: &str, word: &str) -> Option<Level> {
    let mut letters = word.chars();
    let level = match letters.next()? {
        'I' => Level::Info,
        'W' => Level::Warning,
        'E' => Level::Error,
        'F' => Level::Fatal,
        _ => return None,
    };
    let (date, at) = (letters.as_str(), word.as_ptr() as usize - text.as_ptr() as usize);
    if !date.is_empty() {
        let behind = text.get(at + word.len()..)?.strip_prefix(' ')?.trim_start();
        let is_time =
            behind.as_bytes().get(2) == Some(&b':') && behind.starts_with(|c: char| c.is_ascii_digit());
        let is_date = matches!(date.len(), 3 | 4 | 8) && date.bytes().all(|byte| byte.is_ascii_digit());
        return (is_date && is_time).then_some(level);
    }
    let is_dated = text.starts_with(|c: char| c.is_ascii_digit()) && text[..at].ends_with(": ");
    (is_dated && text[at + 1..].starts_with(' ')).then_some(level)
}

/// The lines of one stream of one rank: those of a traceback belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Levels {
    /// Lines since a traceback began; 0 outside.
    block: u32,
    /// It has had its last line, and another one may follow («During handling of the above exception …»).
    over: bool,
    /// The last line was one of a traceback, but not the exception itself.
    part: bool,
}

impl Levels {
    /// Whether the line that was taken last is one of a traceback that another one names: its exception.
    pub fn is_part(self) -> bool {
        self.part
    }

    /// The level of the next line.
    pub fn next(&mut self, text: &str) -> Level {
        let text = super::plain(text);
        // torchrun and mpirun may write the rank before each line
        let text = unprefixed(&text);
        if text.starts_with("Traceback (most recent call last)") {
            *self = Self { block: 1, over: false, part: true };
            return Level::Error;
        }
        self.part = false;
        let level = Level::of_plain(text);
        if self.block == 0 {
            return level;
        }
        self.block += 1;
        let is_within = text.is_empty() || text.starts_with([' ', '\t']);
        let goes_on = text.starts_with("During handling of the above exception")
            || text.starts_with("The above exception was the direct cause");
        if self.block > BLOCK_LINES || self.over && !is_within && !goes_on {
            *self = Self::default();
            return level;
        }
        // the exception itself: `RuntimeError: …`, or a name of the program's own
        self.part = is_within || goes_on;
        self.over |= !self.part;
        Level::Error
    }
}

/// A line without the `[rank3]:` or `[1,3]<stderr>:` that a launcher has written before it.
fn unprefixed(text: &str) -> &str {
    let Some((head, rest)) = text.split_once(':') else { return text };
    let head = head.trim_end_matches("<stderr>").trim_end_matches("<stdout>");
    let is_prefix = head.len() < 24
        && head.starts_with('[')
        && head.ends_with(']')
        && head[1..head.len() - 1].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b',');
    if is_prefix { rest.strip_prefix(' ').unwrap_or(rest) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_from_the_head_of_a_line() {
        for (text, level) in [
            ("2026-11-21 14:32:07,120 WARNING loader: slow", Level::Warning),
            ("WARNING:root:slow", Level::Warning),
            ("[rank3] ERROR: no space", Level::Error),
            ("RuntimeError: CUDA out of memory", Level::Error),
            ("step 12 loss 0.5", Level::Unknown),
            ("thread 'main' panicked at src/x.rs", Level::Fatal),
            ("the 3 error bars of the plot", Level::Unknown),
            ("error: no such file", Level::Error),
            ("[2026-11-21 14:32:07] [error] no space", Level::Error),
            ("time=x level=warn msg=slow", Level::Warning),
            ("E1121 14:32:07.310 4711 pool.cc:12] no memory", Level::Error),
            ("W20261121 14:32:07.310 4711 pool.cc:12] low", Level::Warning),
            ("[rank0]:[W1121 14:32:07.310 ProcessGroupNCCL.cpp:12] slow", Level::Warning),
            ("[rank1]:[E723 01:58:45.667329643 ProcessGroupNCCL.cpp:632] [PG ID 0] x", Level::Error),
            ("E1121 was the train's number", Level::Unknown),
            ("E723 is a number too", Level::Unknown),
            ("2026-11-21 14:32:07.310: E external/xla/cuda_dnn.cc:12] no", Level::Error),
            ("2026-11-21 14:32:07.310: I tensorflow/core/x.cc:12] E", Level::Info),
            ("gpu-a:4711:4712 [0] NCCL WARN Call to connect failed", Level::Warning),
            ("gpu-a:4711:4712 [0] NCCL INFO Channel 00", Level::Info),
            (
                "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/x.py:12: UserWarning: old",
                Level::Warning,
            ),
            ("vitamin E helps", Level::Unknown),
            (
                "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1515: f: block: [0,0,0], thread: [1,0,0] Assertion `i < size` failed.",
                Level::Error,
            ),
            ("train: net.c:12: main: Assertion `rank < size' failed.", Level::Error),
            ("\u{1b}[33mWARNING\u{1b}[0m slow", Level::Warning),
        ] {
            assert_eq!(Level::of(text), level, "{text}");
        }
    }

    #[test]
    fn a_traceback_belongs_together() {
        let lines = [
            ("step 1", Level::Unknown),
            ("\u{1b}[31mTraceback (most recent call last):\u{1b}[0m", Level::Error),
            ("  File \"train.py\", line 3, in <module>", Level::Error),
            ("    step()", Level::Error),
            ("KeyError: 'x'", Level::Error),
            ("", Level::Error),
            ("During handling of the above exception, another exception occurred:", Level::Error),
            ("", Level::Error),
            ("Traceback (most recent call last):", Level::Error),
            ("  File \"train.py\", line 9, in <module>", Level::Error),
            ("mine.Trouble: no", Level::Error),
            ("step 2", Level::Unknown),
            ("  indented", Level::Unknown),
        ];
        for prefix in ["", "[rank3]: ", "[1,3]<stderr>:"] {
            let mut levels = Levels::default();
            for (line, level) in lines {
                assert_eq!(levels.next(&format!("{prefix}{line}")), level, "{prefix}{line}");
            }
        }
    }
}
