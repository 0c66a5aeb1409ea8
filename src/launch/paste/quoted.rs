//! A whole line that reached hvtui as one word, because it stood in quotes. Must not know any single launcher.

use crate::launch::words::{Caret, Line, quote};

use super::pasted::Pasted;

/// Where the line was written, for the words that are right there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Behind `hvtui run --`.
    CommandLine,
    /// In the command field of the form.
    Form,
}

/// Reads a word with blanks in it that is the name of no file: the line that it is, as if it stood without its quotes.
///
/// # Errors
/// What needs a shell, with the words that are right; else as [`super::read`].
pub fn read_quoted(text: &str, shown: Shown) -> Result<Option<Pasted>, Caret> {
    let before = match shown {
        Shown::CommandLine => "-- ",
        Shown::Form => "",
    };
    let text = text.trim();
    match Line::typed(text) {
        // a name with a blank
        Ok(line) if matches!(&line.words[..], [word] if word.span == (0..text.len())) => {
            super::read(&Line::of(&[text]))
        }
        Ok(line) => match super::read(&line)? {
            Some(pasted) => Ok(Some(pasted)),
            None => super::plain(&line).map(Some),
        },
        // a shell would give up what stays in the background, and lines are no words to type again
        Err(caret)
            if caret.text.contains("needs a shell")
                && !(has_background(text) || text.contains(['\n', '\r'])) =>
        {
            let what = caret.text.split(" needs a shell").next().unwrap_or_default();
            let is_launchers = text.split_whitespace().any(super::is_launcher);
            let said = if is_launchers && what == "a variable" {
                // a shell would have no value for it either
                format!("{what} needs a shell: put a number, or what else it stands for, in its place")
            } else {
                format!(
                    "the whole line stands in quotes, which makes it one word, and {what} needs a shell: write `{before}sh -c {}` in \
                     its place",
                    quote(text)
                )
            };
            Err(Caret { text: said, ..caret })
        }
        Err(caret) => Err(caret),
    }
}

/// Whether a shell would start something in the background.
fn has_background(text: &str) -> bool {
    let letters: Vec<char> = text.chars().collect();
    let at = |place: Option<usize>| place.and_then(|place| letters.get(place)).copied();
    letters.iter().enumerate().any(|(place, c)| {
        let around = [at(place.checked_sub(1)), at(Some(place + 1))];
        *c == '&' && !around.iter().flatten().any(|c| "&>|".contains(*c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        match read_quoted(text, Shown::CommandLine) {
            Err(caret) => caret.text,
            Ok(read) => panic!("{text} was read: {read:#?}"),
        }
    }

    #[test]
    fn a_line_in_quotes_is_the_line_that_it_is() {
        for (line, command) in [
            ("python train.py --lr 1", "python train.py --lr 1"),
            ("FOO=1 BAR=\"a b\" python3 x", "python3 x"),
            ("$ ./train.sh", "./train.sh"),
            ("nohup ./train.sh > log 2>&1 &", "./train.sh"),
            ("python a.py \\", "python a.py"),
            ("me@a:~$ python a.py \\\n> --lr 1", "python a.py --lr 1"),
        ] {
            let read = read_quoted(line, Shown::CommandLine).unwrap().unwrap();
            assert_eq!(
                (read.launcher, read.command.join(" ")),
                (super::super::Launcher::Plain, command.to_owned())
            );
        }
        let line =
            read_quoted("NCCL_DEBUG=INFO torchrun --nproc_per_node=2 t.py", Shown::Form).unwrap().unwrap();
        assert_eq!((line.np, line.env.len()), (Some(2), 1));
        let said = fault("TF_CONFIG='{\"cluster\": {}}' python3 tf.py");
        assert!(said.contains("it names no cluster"), "{said}");
    }

    #[test]
    fn what_would_be_left_in_the_background_is_given_to_no_shell() {
        for line in ["python a.py > log & tail -f log", "python a.py & python b.py", "a | b\n&& c"] {
            let said = fault(line);
            assert!(!said.contains("-- sh -c"), "{said}");
            assert!(!said.contains(['\n', '␊']), "{said}");
        }
    }

    #[test]
    fn what_needs_a_shell_is_told_with_one() {
        for (line, what) in [
            ("make && python t.py", "`&&`"),
            ("python t.py | grep loss", "`|`"),
            ("python t.py; echo done", "`;`"),
            ("python t.py --lr $LR", "a variable"),
        ] {
            let said = fault(line);
            assert!(said.contains(&format!("and {what} needs a shell")), "{said}");
            assert!(said.ends_with(&format!("write `-- sh -c '{line}'` in its place")), "{said}");
        }
        for (line, remedy) in [
            (
                "torchrun --nproc_per_node=$NUM_GPUS t.py",
                "put a number, or what else it stands for, in its place",
            ),
            ("torchrun --nproc_per_node=<N> t.py", "`<N>` is a placeholder: put a number"),
            ("`torchrun --nproc_per_node=2 t.py`", "those of Markdown: leave them out"),
            ("docker run -v $(pwd):/w img ./a", "`$(pwd)` is the folder that you are in"),
            ("docker run -v \"${PWD}\":/w img ./a", "--sync . copies it there first"),
        ] {
            let said = fault(line);
            assert!(said.contains(remedy) && !said.contains("sh -c"), "{said}");
        }
        assert!(fault("python a.py\npython b.py").starts_with("a second command begins here"));
    }

    #[test]
    fn what_quotes_are_needed_for_is_read_as_it_was_typed() {
        let read = |text: &str| read_quoted(text, Shown::CommandLine).unwrap().unwrap();
        let line = read("cd ~/x && torchrun --nproc_per_node=2 t.py");
        assert_eq!((line.workdir.as_deref(), line.np), (Some("~/x"), Some(2)));
        let line = read("conda activate x && python t.py");
        assert_eq!((line.environment.conda.as_deref(), line.command.len()), (Some("x"), 2));
        let line = read("# a note\nexport A=1\npython t.py");
        assert_eq!((line.env.len(), line.command.join(" ")), (1, "python t.py".to_owned()));
        assert_eq!(read("# a note\npython t.py").command.join(" "), "python t.py");
        let line = read("cd /x && ./train.sh");
        assert_eq!((line.workdir.as_deref(), line.command.join(" ")), (Some("/x"), "./train.sh".to_owned()));
        assert_eq!(read("# a note\n./train.sh").command, ["./train.sh"]);
        assert_eq!(read_quoted("my\\ program", Shown::CommandLine), Ok(None));
    }
}
