//! Lines that a shell splits in the same way, lines that need a shell, and carets.

use super::*;
use proptest::prelude::*;

fn texts(line: &str) -> Vec<String> {
    split(line).unwrap().into_iter().map(|word| word.text).collect()
}

/// The error's text, and the part of the line that it points at.
fn fault(line: &str) -> (String, String) {
    let error = split(line).unwrap_err();
    let end = (error.at + error.len).min(line.len());
    (error.text.clone(), line[error.at..end].to_owned())
}

#[test]
fn lines_split_as_in_a_shell() {
    for (line, words) in [
        (r#"a  "b c" 'd"e' f\ g"#, vec!["a", "b c", "d\"e", "f g"]),
        ("''", vec![""]),
        ("", vec![]),
        ("a\"b\"'c'd", vec!["abcd"]),
        // a backslash in double quotes stays, but before these four
        (r#""a\tb" "\$\"\\\`" "\'""#, vec![r"a\tb", r#"$"\`"#, r"\'"]),
        ("a \\\n  b \"c\\\nd\" e\\\nf", vec!["a", "b", "cd", "ef"]),
        ("a \\\r\n b", vec!["a", "b"]),
        ("a \\\r b \"c\\\rd\" e\\\rf\r", vec!["a", "b", "cd", "ef"]),
        ("\na b\n\n", vec!["a", "b"]),
        ("a # the rest | is a comment", vec!["a"]),
        ("a#b", vec!["a#b"]),
        ("a $ b$ \"$\" \"$ x\" '$HOME' \\$HOME", vec!["a", "$", "b$", "$", "$ x", "$HOME", "$HOME"]),
        ("x=$% 'a|b' a\\;b", vec!["x=$%", "a|b", "a;b"]),
        ("naïve – \u{a0}x", vec!["naïve", "–", "x"]),
        // a backslash that joins nothing
        ("a b \\", vec!["a", "b"]),
    ] {
        assert_eq!(texts(line), words, "{line}");
    }
}

#[test]
fn what_needs_a_shell_is_refused_at_its_place() {
    for (line, says, place) in [
        ("python x.py | tee log", "`|` needs a shell", "|"),
        ("cd /x && python x.py", "start `sh -c '…'`", "&&"),
        ("python x.py > log 2>&1", "output is recorded anyway", ">"),
        ("nohup python x.py &", "a run goes on without this terminal", "&"),
        ("a; b", "`;` needs a shell", ";"),
        ("python $SCRIPT x", "a variable needs a shell", "$SCRIPT"),
        ("python ${SCRIPT} x", "a variable needs a shell", "${SCRIPT}"),
        ("python \"a $1\" x", "a variable needs a shell", "$1"),
        ("n=$(nproc) x", "`$(…)` needs a shell", "$(nproc)"),
        ("n=`nproc` x", "backticks needs a shell", "`nproc`"),
        ("a \"`x`\"", "backticks needs a shell", "`x`"),
        ("a $'b'", "a variable needs a shell", "$'"),
        ("(a)", "`(` needs a shell", "("),
        ("a\nb c", "a second command begins here", "b c"),
        ("a\rb c", "a second command begins here", "b c"),
        ("a 'b", "the quote ' is never closed", "'"),
        ("a \"b\\", "the quote \" is never closed", "\""),
    ] {
        let (text, at) = fault(line);
        assert!(text.contains(says), "{line}: {text}");
        assert_eq!(at, place, "{line}");
    }
}

#[test]
fn a_pasted_text_keeps_what_has_a_meaning() {
    for (text, tidied) in [
        ("a \\\r  b \\\r\n  c\r", "a b c"),
        ("# one\n\n  a b # two\n   # three\nc\n\n", "a b\nc"),
        ("a '# x\n\\\n  y' \"b\\\nc\"", "a '# x\n\\\n  y' \"bc\""),
        ("a\\ b#c\t\td", "a\\ b#c  d"),
        ("#!/bin/sh\n#SBATCH -n 2\n# one\nsrun ./a\n", "#SBATCH -n 2\nsrun ./a"),
        ("#!/bin/sh\n  #SBATCH -n 2\n\t # one\n  srun ./a\n", "  #SBATCH -n 2\nsrun ./a"),
        ("a\n\t#SBATCH -n 2", "a\n #SBATCH -n 2"),
        (" --lr  1", " --lr  1"),
        ("a \\", "a \\"),
        ("# don't", ""),
        ("a ''", "a ''"),
    ] {
        assert_eq!(tidy("", text), tidied, "{text:?}");
    }
    assert_eq!(tidy("", "a \\ \t\r\n  b \\  \n c\\ d"), "a b c\\ d");
    assert_eq!(tidy("", "a \"b\\ \nc\""), "a \"b\\ \nc\"", "in quotes blanks are kept");
    assert_eq!(tidy("--tag=", "#3 # a note"), "#3 ");
    assert_eq!(tidy("a ", "# a note"), "");
}

#[test]
fn what_was_copied_along_is_left_out_of_a_typed_line() {
    let typed = |line: &str| {
        let line = Line::typed(line).unwrap_or_else(|caret| panic!("{line}: {caret}"));
        let words: Vec<&str> = line.words.iter().map(|word| word.text.as_str()).collect();
        (words.join(" "), line.ending.output.join("+"), line.ending.background.unwrap_or_default())
    };
    for (line, words, output, background) in [
        ("nohup python3 ddp.py > train.log 2>&1 &", "nohup python3 ddp.py", "> train.log+2>&1", "&"),
        ("python3 x 2> err", "python3 x", "2> err", ""),
        ("python3 x 2>&1 | tee log", "python3 x", "2>&1+| tee log", ""),
        ("python3 x>log", "python3 x", ">log", ""),
        ("python3 x \\  \n", "python3 x", "", ""),
        ("python3 x2>log", "python3 x2", ">log", ""),
        ("cd /x && python3 x > log # note", "python3 x", "> log", ""),
        ("source e/bin/activate > /dev/null\npython3 x", "python3 x", "", ""),
        ("(base) me@gpu-a:~/proj$ torchrun x", "torchrun x", "", ""),
        ("root@n1:~# mpirun -np 2 x &", "mpirun -np 2 x", "", "&"),
        ("$ cd /p\n$ torchrun \\\n> --nproc_per_node=2 \\\n> x", "torchrun --nproc_per_node=2 x", "", ""),
        ("python3 x \\\n> train.log", "python3 x", "> train.log", ""),
        ("torchrun \\  \n  --nproc_per_node=2 \\\t\r\n  x", "torchrun --nproc_per_node=2 x", "", ""),
        ("# On the first node\n$ torchrun x # two GPUs", "torchrun x", "", ""),
        ("python3 x 5–7 – it’s '“y”'", "python3 x 5–7 – it’s “y”", "", ""),
        ("docker run -it IMG\nroot@1f:/w# python3 x", "docker run -it IMG python3 x", "", ""),
    ] {
        let told = (words.to_owned(), output.to_owned(), background.to_owned());
        assert_eq!(typed(line), told, "{line}");
    }
    for line in
        ["python3 x > log --lr 1", "python3 x > log && y", "> log", ">>> x", "a & b", "python3 x > log\ny"]
    {
        assert!(Line::typed(line).is_err(), "{line}");
        assert!(split(line).is_err(), "{line}");
    }
    assert!(split("python3 x > log").is_err(), "a field of the form is no line of a shell");
    assert_eq!(tidy("", "torchrun \\\n> --nproc_per_node=2 \\\r\n> x"), "torchrun --nproc_per_node=2 x");
}

#[test]
fn typographic_quotes_and_dashes_are_refused_at_their_place() {
    for (line, says, place) in [
        ("python x.py --name “my run”", "`“` is not the quote \" of a shell", "“"),
        ("mpirun -x A=‘b c’ ./x", "`‘` is not the quote ' of a shell", "‘"),
        ("python x.py –lr 1", "`–` is not the `-` that options begin with", "–"),
        ("torchrun —nproc_per_node=2 x.py", "`—` is not the `-` that options begin with", "—"),
        ("python x.py –-lr 1", "retype it", "–"),
    ] {
        let error = Line::typed(line).unwrap_err();
        assert!(error.text.contains(says), "{line}: {error}");
        assert_eq!(&line[error.at..error.at + error.len], place, "{line}");
        assert!(split(line).is_ok(), "words of a shell are what they are: {line}");
    }
}

#[test]
fn words_know_their_places() {
    let line = r#"a "b\"c"d  e"#;
    let words = split(line).unwrap();
    assert_eq!(&line[words[1].span.clone()], r#""b\"c"d"#);
    assert_eq!(words[1].text, "b\"cd");
    assert_eq!(&line[words[1].part(2..4)], "c\"d");
    assert_eq!(&line[words[1].place(1)..=words[1].place(1)], "\\");
    assert_eq!(words[1].place(9), words[1].span.end);
    assert_eq!(words[2].part(0..0), words[2].span.start..words[2].span.start);
}

#[test]
fn a_caret_stands_under_its_place() {
    let line = Line::typed("run -H a:1 b:1 x").unwrap();
    let error = line.caret(line.words[3].span.clone(), "join the hosts");
    assert_eq!(error.to_string(), "join the hosts\n  run -H a:1 b:1 x\n             ^^^");
    let error = line.caret(line.text.len()..line.text.len(), "no command");
    assert_eq!(error.to_string(), "no command\n  run -H a:1 b:1 x\n                  ^");
    let line = Line::typed("日本 \\\n x\u{7f}y z").unwrap();
    let error = line.caret(line.words[2].span.clone(), "bad");
    assert_eq!(error.to_string(), "bad\n  日本 \\  x␡y z\n              ^");
}

#[test]
fn a_long_line_is_shown_around_the_place() {
    let text = format!("{} HERE {}", "x ".repeat(200).trim(), "y ".repeat(200).trim());
    let line = Line::typed(&text).unwrap();
    let error = line.caret(line.words[200].span.clone(), "bad").to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[1].starts_with("  …") && lines[1].ends_with('…'), "{error}");
    assert!(lines[1].chars().count() <= EXCERPT + 4, "{error}");
    let column = lines[2].find('^').unwrap();
    let under: String = lines[1].chars().skip(column).take(4).collect();
    assert_eq!((under.as_str(), lines[2].trim()), ("HERE", "^^^^"));
}

proptest! {
    #[test]
    fn what_is_joined_splits_back(words in proptest::collection::vec("[^\0]{0,8}", 0..5)) {
        let line = Line::of(&words);
        let back: Vec<&str> = line.words.iter().map(|word| word.text.as_str()).collect();
        prop_assert_eq!(back, words);
    }

    #[test]
    fn nothing_panics_and_carets_lie_in_the_line(line in "[-a:1 \"'\\\\$`|&\n#(é日{]{0,40}") {
        match split(&line) {
            Err(error) => {
                prop_assert!(error.at <= line.len());
                prop_assert_eq!(error.to_string().lines().count(), 3);
            }
            Ok(words) => for word in words {
                prop_assert!(word.span.end <= line.len());
                for at in 0..word.text.len() {
                    prop_assert!(word.span.contains(&word.place(at)));
                }
            }
        }
    }

    /// POSIX `sh` itself is asked nothing here: shlex is the second opinion, for lines that both take.
    #[test]
    fn shlex_agrees(line in "[ab \"'\\\\]{0,24}") {
        if let (Ok(ours), Some(theirs)) = (split(&line), shlex::split(&line)) {
            let ours: Vec<String> = ours.into_iter().map(|word| word.text).collect();
            prop_assert_eq!(ours, theirs);
        }
    }
}
