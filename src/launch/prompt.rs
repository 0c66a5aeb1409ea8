//! What a shell prints before a line is typed, and what is copied along with the line. Pure.

/// The bytes of the prompt that a line begins with; 0 where it begins with none.
pub(super) fn len(line: &str) -> usize {
    let line = line.split(['\n', '\r']).next().unwrap_or_default();
    let indent = line.len() - line.trim_start().len();
    let mut at = indent;
    // conda and virtual environments name themselves before the prompt, and mean nothing without one
    while let Some(len) = environment(&line[at..]) {
        at += len;
    }
    match mark(&line[at..])
        .or_else(|| of_a_cell(&line[at..]))
        .or_else(|| bracketed(&line[at..]))
        .or_else(|| at_host(&line[at..]))
    {
        Some(len) => at + len + blanks(&line[at + len..]),
        None => 0,
    }
}

/// The bytes of the `> ` before a line that goes on with the one before. One word that is named as what programs
/// print into is the file of a redirection.
pub(super) fn continued(line: &str) -> usize {
    let line = line.split(['\n', '\r']).next().unwrap_or_default();
    let Some(rest) = line.strip_prefix("> ") else { return 0 };
    let first = rest.split_whitespace().next().unwrap_or_default();
    let written = [".log", ".txt", ".out", ".err", ".json", ".jsonl", ".csv", ".tsv", "/dev/null"];
    let is_log = written.iter().any(|end| first.ends_with(end));
    if is_log { 0 } else { line.len() - rest.len() }
}

fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// `$ `, `% `, `❯ `.
fn mark(text: &str) -> Option<usize> {
    let mark = text.chars().next().filter(|c| "$%❯".contains(*c))?.len_utf8();
    text[mark..].starts_with(char::is_whitespace).then_some(mark)
}

/// The `!` of a notebook's cell, and the `1. ` of a list.
fn of_a_cell(text: &str) -> Option<usize> {
    if let Some(command) = text.strip_prefix('!') {
        let begins = |c: char| c.is_ascii_alphanumeric() || "./~_".contains(c);
        return command.trim_start_matches([' ', '\t']).starts_with(begins).then_some(1);
    }
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    (digits > 0 && text[digits..].starts_with(". ")).then_some(digits + 1)
}

/// `(base) `.
fn environment(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('(')?;
    let end = inside.find(')')?;
    let is_name = |c: char| c.is_alphanumeric() || "._-/~+ ".contains(c);
    let behind = &inside[end + 1..];
    (end > 0 && inside[..end].chars().all(is_name) && behind.starts_with(char::is_whitespace))
        .then(|| end + 2 + blanks(behind))
}

/// `[li@gpu-a proj]$ `.
fn bracketed(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('[')?;
    let end = inside.find(']')?;
    let named = inside[..end].split_once('@').is_some_and(|(user, _)| is_name(user));
    named.then(|| ends(&inside[end + 1..]).map(|mark| end + 2 + mark)).flatten()
}

/// `me@gpu-a:~/proj$ `, `root@n1:~# `, `me@mac proj % `.
fn at_host(text: &str) -> Option<usize> {
    let (user, rest) = text.split_once('@')?;
    let host = rest.find(|c: char| !is_letter(c))?;
    if !is_name(user) || host == 0 {
        return None;
    }
    let from = user.len() + 1 + host;
    let behind = &text[from..];
    let folder = if behind.starts_with(':') {
        behind.find(['$', '#', '%']).filter(|end| !behind[..*end].contains(['"', '\'', '=']))?
    } else if ends(behind.trim_start()).is_some() {
        blanks(behind)
    } else {
        let name = behind.trim_start().find(char::is_whitespace)?;
        let at = blanks(behind) + name;
        at + blanks(&behind[at..])
    };
    ends(&behind[folder..]).map(|mark| from + folder + mark)
}

/// The mark that ends a prompt, with a blank behind it.
fn ends(text: &str) -> Option<usize> {
    (text.starts_with(['$', '#', '%']) && text[1..].starts_with(char::is_whitespace)).then_some(1)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_shells_are_known() {
        for (line, command) in [
            ("$ torchrun x", "torchrun x"),
            ("  % mpirun x", "mpirun x"),
            ("❯ python x", "python x"),
            ("(base) $ python x", "python x"),
            ("(base) me@gpu-a:~/proj$ torchrun x", "torchrun x"),
            ("(base) (v-1.2) me@gpu-a:~$ torchrun x", "torchrun x"),
            ("root@n1:~# mpirun -np 2 x", "mpirun -np 2 x"),
            ("root@n1:/data/my runs# mpirun x", "mpirun x"),
            ("[li@gpu-a proj]$ python x", "python x"),
            ("[root@gpu-a ~]# python x", "python x"),
            ("me@mac proj % python x", "python x"),
            ("me@mac % python x", "python x"),
            ("me@gpu-a$ python x", "python x"),
            ("!torchrun x", "torchrun x"),
            ("! ./x", "./x"),
            ("1. torchrun x", "torchrun x"),
        ] {
            assert_eq!(&line[len(line)..], command, "{line}");
        }
    }

    #[test]
    fn a_command_is_no_prompt() {
        for line in [
            "python x",
            "$HOME/x a",
            "(base) python x",
            "(a; b) $ x",
            ">>> import torch",
            "python a@b:c$ d",
            "A=x@y:z python # note",
            "# note",
            "[ -f x ] && y",
            "50% x",
            "!= x",
            "1.5 x",
            "1.",
            "me@h:x=1# y",
            "",
        ] {
            assert_eq!(len(line), 0, "{line}");
        }
    }

    #[test]
    fn a_line_that_goes_on_has_a_prompt_of_its_own() {
        assert_eq!(continued("> --lr 1"), 2);
        assert_eq!(continued("> ddp.py --lr 1"), 2);
        for line in ["  > --lr 1", "--lr 1", "> train.log 2>&1", "> /dev/null", "> results.json", ">> x", ">"]
        {
            assert_eq!(continued(line), 0, "{line}");
        }
    }
}
