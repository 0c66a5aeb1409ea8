//! A whole line that reached hvtui as one word, because it stood in quotes. Must not know any single launcher.

use crate::launch::words::{Caret, Line, quote};

use super::draft::Draft;
use super::pasted::Pasted;

/// Where the line was written, for the words that are right there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Behind `hvtui run --`.
    CommandLine,
    /// In the command field of the form.
    Form,
}

/// Reads a word with blanks in it that is the name of no file. What a shell would have taken apart where there are no
/// quotes is read as it was typed: several lines, and a command with `cd` and the like before it.
///
/// # Errors
/// That it is one word, with the words that are right; else as [`super::read`].
pub fn read_quoted(text: &str, shown: Shown) -> Result<Option<Pasted>, Caret> {
    let before = match shown {
        Shown::CommandLine => "hvtui run -- ",
        Shown::Form => "",
    };
    let text = text.trim();
    match Line::typed(text) {
        Ok(line) if !line.before.is_empty() || text.contains(['\n', '\r']) => {
            if let Some(pasted) = super::read(&line)? {
                return Ok(Some(pasted));
            }
            let mut draft = Draft::new(&line);
            draft.pasted.argv = draft.texts(0);
            draft.take_command(0)?;
            Ok(Some(draft.pasted))
        }
        Ok(line) if line.words.len() < 2 => super::read(&Line::of(&[text])),
        Ok(line) => {
            let said = format!(
                "the whole line stands in quotes, which makes it one word: leave the quotes out: `{before}{text}`"
            );
            Err(line.caret(0..text.len(), said))
        }
        Err(caret) if caret.text.contains("needs a shell") => {
            let what = caret.text.split(" needs a shell").next().unwrap_or_default();
            let said = format!(
                "the whole line stands in quotes, which makes it one word, and {what} needs a shell: `{before}sh -c {}`",
                quote(text)
            );
            Err(Caret { text: said, ..caret })
        }
        Err(caret) => Err(caret),
    }
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
    fn a_line_in_quotes_is_told_without_them() {
        for line in [
            "python train.py --lr 1",
            "NCCL_DEBUG=INFO torchrun --nproc_per_node=2 t.py",
            "TF_CONFIG='{\"cluster\": {}}' python3 tf.py",
        ] {
            let said = fault(line);
            assert!(said.contains("makes it one word: leave the quotes out"), "{said}");
            assert!(said.ends_with(&format!(": `hvtui run -- {line}`")), "{said}");
        }
        let form = read_quoted("python t.py", Shown::Form).unwrap_err().text;
        assert!(form.ends_with("leave the quotes out: `python t.py`"), "{form}");
    }

    #[test]
    fn what_needs_a_shell_is_told_with_one() {
        for (line, what) in [
            ("make && python t.py", "`&&`"),
            ("python t.py | tee log", "`|`"),
            ("python t.py; echo done", "`;`"),
            ("python t.py --lr $LR", "a variable"),
        ] {
            let said = fault(line);
            assert!(said.contains(&format!("and {what} needs a shell")), "{said}");
            assert!(said.ends_with(&format!("`hvtui run -- sh -c '{line}'`")), "{said}");
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
