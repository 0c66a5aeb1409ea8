//! What stands behind a command in a shell's line and has no place in a run: where output goes, `| tee`, `&`. Pure.

/// What a line ends with and what is left out of it, as typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ending {
    /// Where the shell would have put what the command prints: `> train.log 2>&1`.
    pub output: Vec<String>,
    /// `&`, or `& disown`.
    pub background: Option<String>,
    /// Its bytes.
    pub len: usize,
}

impl Ending {
    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.output.is_empty() && self.background.is_none()
    }

    /// What to know of it, a sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.output.is_empty() {
            let verb = if self.output.len() == 1 { "is" } else { "are" };
            let list: Vec<String> = self.output.iter().map(|text| format!("`{text}`")).collect();
            remarks.push(format!(
                "{} {verb} left out: what ranks print is recorded (`hvtui logs`), and --output-filename DIR writes it to files too.",
                list.join(" and ")
            ));
        }
        remarks.extend(self.background.as_ref().map(|text| {
            format!("`{text}` is left out: a run goes on without this terminal; --detach leaves it at once.")
        }));
        remarks
    }
}

/// Reads what stands from the beginning of `text` to the end of its line; `None` where anything else stands there.
pub(super) fn read(text: &str) -> Option<Ending> {
    let mut at = Reader { text, at: 0 };
    let mut ending = Ending::default();
    while !at.is_end() {
        let from = at.at;
        if let Some(background) = at.background() {
            ending.background = Some(background);
            break;
        }
        if at.redirection().is_none() {
            at.at = from;
            at.tee()?;
        }
        ending.output.push(text[from..at.at].to_owned());
        at.blanks();
    }
    ending.len = at.at;
    (!ending.is_empty()).then_some(ending)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, text: &str) -> Option<()> {
        self.rest().starts_with(text).then(|| self.at += text.len())
    }

    /// Blanks, and line ends that a backslash joins.
    fn blanks(&mut self) {
        loop {
            let rest = self.rest();
            let end = ["\\\r\n", "\\\n", "\\\r"].into_iter().find(|end| rest.starts_with(end));
            let blank = rest.chars().next().filter(|c| c.is_whitespace() && !matches!(c, '\n' | '\r'));
            match (end, blank) {
                (Some(end), _) => self.at += end.len(),
                (None, Some(blank)) => self.at += blank.len_utf8(),
                (None, None) => return,
            }
        }
    }

    /// The end of the line, before a comment too.
    fn is_end(&self) -> bool {
        let rest = self.rest();
        let comment = rest.starts_with('#') && self.text[..self.at].ends_with(char::is_whitespace);
        rest.is_empty() || rest.starts_with(['\n', '\r']) || comment || rest.trim() == "\\"
    }

    /// `&` at the end, with `disown` behind it.
    fn background(&mut self) -> Option<String> {
        let mut after = Reader { text: self.text, at: self.at };
        after.take("&")?;
        let mut end = after.at;
        after.blanks();
        if after.take(";").is_some() {
            after.blanks();
        }
        if after.take("disown").is_some() {
            let arguments = |c: char| !matches!(c, ' ' | '-' | '%' | 'a' | 'h' | 'r' | '0'..='9');
            after.at += after.rest().find(arguments).unwrap_or(after.rest().len());
            end = self.text[..after.at].trim_end().len();
        }
        after.blanks();
        let text = self.text[self.at..end].to_owned();
        after.is_end().then(|| self.at = after.at)?;
        Some(text)
    }

    /// `> f`, `2>> f`, `&> f`, `2>&1`, `< /dev/null`.
    fn redirection(&mut self) -> Option<()> {
        let digits = self.rest().chars().take_while(char::is_ascii_digit).count();
        let both = self.rest().starts_with("&>");
        self.at += if both { 1 } else { digits };
        if self.take("<").is_some() {
            // what it would read a rank does not get
            self.blanks();
            self.take("/dev/null")?;
            return self.rest().chars().next().is_none_or(is_between).then_some(());
        }
        self.take(">")?;
        let _ = self.take(">").or_else(|| self.take("|")).or_else(|| self.take("&"));
        self.blanks();
        self.word()
    }

    /// `| tee -a f`.
    fn tee(&mut self) -> Option<()> {
        self.take("|")?;
        let _ = self.take("&");
        self.blanks();
        self.take("tee")?;
        self.rest().starts_with(is_between).then_some(())?;
        loop {
            let end = self.at;
            self.blanks();
            if self.is_end() || self.rest().starts_with(['|', '>', '&', '<']) || self.is_descriptor() {
                self.at = end;
                return Some(());
            }
            self.word()?;
        }
    }

    /// `2>`: the number belongs to what follows.
    fn is_descriptor(&self) -> bool {
        self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['>', '<'])
    }

    /// The name of a file, which may be made by the shell: nothing of it is used.
    fn word(&mut self) -> Option<()> {
        let from = self.at;
        while let Some(c) = self.rest().chars().next() {
            let len = match c {
                c if is_between(c) => break,
                '\'' => self.rest()[1..].find('\'')? + 2,
                '"' => quoted(self.rest())?,
                '`' => self.rest()[1..].find('`')? + 2,
                '\\' => 1 + self.rest()[1..].chars().next().map_or(0, char::len_utf8),
                '$' if self.rest().starts_with("$(") => parenthesis(self.rest())?,
                c => c.len_utf8(),
            };
            self.at += len;
        }
        (self.at > from).then_some(())
    }
}

/// What ends a word.
fn is_between(c: char) -> bool {
    c.is_whitespace() || matches!(c, '|' | '&' | ';' | '<' | '>' | '(' | ')')
}

/// The length of `"…"`.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// The length of `$(…)`.
fn parenthesis(text: &str) -> Option<usize> {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        *c == ')' && depth == 0
    });
    end.map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_output_goes_and_the_background_are_an_ending() {
        for (text, output, background) in [
            ("> train.log 2>&1 &", "> train.log+2>&1", "&"),
            (">> f", ">> f", ""),
            (">f 2>/dev/null </dev/null", ">f+2>/dev/null+</dev/null", ""),
            ("&> f", "&> f", ""),
            ("&>>f &", "&>>f", "&"),
            (">& f", ">& f", ""),
            ("2> \"my log\"", "2> \"my log\"", ""),
            ("> log_$(date +%F_%T).txt 2>&1", "> log_$(date +%F_%T).txt+2>&1", ""),
            ("> ${DIR}/$X.log", "> ${DIR}/$X.log", ""),
            ("2>&1 | tee -a out.log", "2>&1+| tee -a out.log", ""),
            ("|& tee f 2>&1", "|& tee f+2>&1", ""),
            ("| tee f | tee g", "| tee f+| tee g", ""),
            ("& disown", "", "& disown"),
            ("& disown -h %1  ", "", "& disown -h %1"),
            ("> f # a note", "> f", ""),
            ("> f \\\n  2>&1", "> f+2>&1", ""),
            ("> f\nnext", "> f", ""),
            ("&", "", "&"),
        ] {
            let ending = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(ending.output.join("+"), output, "{text}");
            assert_eq!(ending.background.unwrap_or_default(), background, "{text}");
            let rest = &text[ending.len..];
            assert!(rest.is_empty() || rest.starts_with(['\n', '#']), "{text}: {rest}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "&& x",
            "| grep loss",
            "; x",
            "> f x",
            "> f && x",
            "& x",
            "& tail -f log",
            "< data",
            ">",
            "> ",
            "<<< x",
            "| tee f | grep x",
            "> f; echo done",
            "> 'f",
            "(x)",
            "|| x",
            "| teeth",
            "<(x)",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_ending_is_said_with_what_takes_its_place() {
        let remarks = |text: &str| read(text).unwrap().remarks().join(" ");
        insta::assert_snapshot!(remarks("> train.log 2>&1 &"), @"`> train.log` and `2>&1` are left out: what ranks print is recorded (`hvtui logs`), and --output-filename DIR writes it to files too. `&` is left out: a run goes on without this terminal; --detach leaves it at once.");
        assert!(remarks("| tee f").starts_with("`| tee f` is left out: what ranks print is recorded"));
    }
}
