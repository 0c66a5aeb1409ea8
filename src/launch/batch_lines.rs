//! The lines of a batch script that begin with `#SBATCH`, as a command line keeps them. Must not know what their options mean.

use super::words::Word;

/// What sbatch reads of the lines before a command, and what it passes over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The words of those that it reads.
    pub words: Vec<Word>,
    /// The options of each one that it passes over, as they stand there, and why.
    pub passed_over: Vec<(String, &'static str)>,
}

impl Batch {
    /// Whether there is no such line.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.passed_over.is_empty()
    }

    /// Whether sbatch reads the options of a comment; `before` is the text before its `#`, and `is_first` says that no command stands
    /// there. One that looks as if it did is noted.
    pub(super) fn takes(&mut self, before: &str, options: &str, is_first: bool) -> bool {
        let indent = before.rsplit(['\n', '\r']).next().unwrap_or_default();
        // more than blanks is a prompt, or a command of which it is the comment
        let is_line = indent.trim().is_empty();
        let why = if is_line && !is_first {
            "sbatch reads no such line behind the first command"
        } else if is_line && !indent.is_empty() {
            "sbatch reads no such line with blanks before it"
        } else {
            return is_first;
        };
        self.passed_over.push((options.trim().to_owned(), why));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_at_its_first_column_and_before_the_first_command() {
        let mut batch = Batch::default();
        assert!(batch.takes("", " -n 2", true) && batch.takes("#!/bin/sh\r\n", " -n 2", true));
        assert!(batch.takes("# one\n$ ", " -n 2", true), "behind a prompt that was copied along");
        assert!(!batch.takes("srun ./a ", " -n 2", false), "a comment of a command");
        assert!(batch.is_empty());
        assert!(!batch.takes("  ", " -n 2 ", true) && !batch.takes("#\n\t", " -N 1", true));
        assert!(!batch.takes("cd /x\n", " -p gpu", false));
        let whys: Vec<&str> = batch.passed_over.iter().map(|(_, why)| *why).collect();
        assert!(
            whys[0].contains("blanks") && whys[1].contains("blanks") && whys[2].contains("first command")
        );
        assert_eq!((batch.passed_over[0].0.as_str(), batch.is_empty()), ("-n 2", false));
    }
}
