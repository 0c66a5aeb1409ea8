//! Parts of a launch as one line of text, as a form has them: volumes, and what is activated; and back. Pure.

use super::environment::{modules, name};
use super::words::{Caret, Word, quote, split};
use crate::domain::container::Volume;
use crate::domain::environment::EnvironmentPlan;

/// Volumes as `-v` takes them, separated by blanks or commas. Quotes keep a text together. A comma that options follow is
/// theirs, as in `/data:/data:ro,z`.
pub fn volumes(text: &str) -> Result<Vec<String>, Caret> {
    let begins_another = |rest: &str| {
        let next = rest.split(|c: char| c == ',' || c.is_whitespace()).next().unwrap_or_default();
        next.is_empty() || next.contains(':') || next.starts_with(['/', '~', '\'', '"'])
    };
    let words = split(&spaced(text, begins_another))?;
    Ok(words.into_iter().map(|word| word.text).collect())
}

/// Volumes in one line that [`volumes`] reads.
pub fn volumes_text(list: &[Volume]) -> String {
    let text = |volume: &Volume| {
        let text = volume.to_string();
        if volumes(&text).is_ok_and(|read| read == [text.as_str()]) { text } else { quote_always(&text) }
    };
    list.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// What is activated, such as `module cuda/12.4,nccl, conda train, venv ~/v`. Blanks and commas separate, quotes keep
/// together. The word behind `conda`, `venv` or `module` is a name, whatever it says.
///
/// # Errors
/// What is wrong and how it is written.
pub fn activated(text: &str) -> Result<EnvironmentPlan, String> {
    let mut plan = EnvironmentPlan::default();
    let mut words = split(&spaced(text, |_| true)).map_err(|caret| caret.text)?.into_iter();
    let mut in_modules = false;
    while let Some(word) = words.next() {
        let Some(key) = key(&word) else {
            if !in_modules {
                let text = quote(&word.text);
                return Err(format!("{text} stands alone: write conda {text}, venv {text} or module {text}"));
            }
            plan.modules.push(word.text);
            continue;
        };
        let value = words.next().ok_or_else(|| {
            format!("{key} has no name behind it: write conda NAME, venv PATH or module A,B")
        })?;
        let value = value.text;
        in_modules = key == MODULE;
        let place = match key {
            CONDA => &mut plan.conda,
            VENV => &mut plan.venv,
            _ => {
                plan.modules.push(value);
                continue;
            }
        };
        let checked = name(key, &value).map_err(|fault| fault.to_string())?;
        if place.replace(checked).is_some() {
            return Err(format!("{key} stands here twice: leave one of the two out"));
        }
    }
    let names = plan.modules.iter().map(String::as_str);
    plan.modules = modules(MODULE, names).map_err(|fault| fault.to_string())?;
    Ok(plan)
}

/// What is activated in one line that [`activated`] reads; the order is that in which it is done. Login shell and limits are
/// not in it.
pub fn activated_text(plan: &EnvironmentPlan) -> String {
    let text = |text: &String| {
        let read = split(&spaced(text, |_| true)).unwrap_or_default();
        let is_plain = matches!(read.as_slice(), [word] if word.text == *text && key(word).is_none());
        if is_plain { text.clone() } else { quote_always(text) }
    };
    let names: Vec<String> = plan.modules.iter().map(text).collect();
    let modules = (!names.is_empty()).then(|| format!("{MODULE} {}", names.join(",")));
    let conda = plan.conda.as_ref().map(|name| format!("{CONDA} {}", text(name)));
    let venv = plan.venv.as_ref().map(|path| format!("{VENV} {}", text(path)));
    modules.into_iter().chain(conda).chain(venv).collect::<Vec<_>>().join(", ")
}

const CONDA: &str = "conda";
const VENV: &str = "venv";
const MODULE: &str = "module";

/// The thing that a word announces; a word in quotes announces nothing.
fn key(word: &Word) -> Option<&'static str> {
    let is_quoted = word.span.len() != word.text.len();
    [CONDA, VENV, MODULE].into_iter().find(|key| *key == word.text && !is_quoted)
}

fn quote_always(text: &str) -> String {
    let quoted = quote(text);
    if quoted == text { format!("'{text}'") } else { quoted }
}

/// A text with a blank for each comma outside of quotes that `separates`, by what follows it.
fn spaced(text: &str, separates: impl Fn(&str) -> bool) -> String {
    let (mut open, mut escaped) = (None, false);
    let one = |(at, c): (usize, char)| {
        if std::mem::take(&mut escaped) {
            return c;
        }
        match (open, c) {
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => open = Some(c),
            (Some(quote), _) if c == quote => open = None,
            (None, ',') if separates(&text[at + 1..]) => return ' ',
            _ => {}
        }
        c
    };
    text.char_indices().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_separated_by_blanks_or_commas_and_keep_their_options() {
        for (text, expected) in [
            ("", &[][..]),
            (" /data:/data ", &["/data:/data"]),
            ("/data:/data:ro,z ~/c:/c", &["/data:/data:ro,z", "~/c:/c"]),
            ("/a:/b,/c:/d:ro,z,cache:/e", &["/a:/b", "/c:/d:ro,z", "cache:/e"]),
            ("/a:/b, /c:/d,", &["/a:/b", "/c:/d"]),
            ("/a:/b,/c", &["/a:/b", "/c"]),
            ("'/my data:/d' \"/x,y:/z\"", &["/my data:/d", "/x,y:/z"]),
            (r"/my\ data:/d,'/q:/q'", &["/my data:/d", "/q:/q"]),
        ] {
            assert_eq!(volumes(text).unwrap(), expected, "{text}");
        }
        assert!(volumes("'/a:/b").unwrap_err().text.contains("never closed"));
        assert!(volumes("$HOME:/b").unwrap_err().text.contains("a variable needs a shell"));
    }

    #[test]
    fn volumes_are_written_as_they_are_read() {
        for list in [
            &["/data:/data:ro,z", "~/c:/c"][..],
            &["/my data:/d", "/it's:/x", "/a,/b:/c", "/a,b:/c", "c$x:/y", "#:/z"],
            &[],
        ] {
            let parsed: Vec<Volume> = list.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(volumes(&volumes_text(&parsed)).unwrap(), list);
        }
        assert_eq!(volumes_text(&["~/c:/c:ro,z".parse().unwrap()]), "~/c:/c:ro,z", "without quotes");
    }

    fn plan(modules: &[&str], conda: Option<&str>, venv: Option<&str>) -> EnvironmentPlan {
        EnvironmentPlan {
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            conda: conda.map(str::to_owned),
            venv: venv.map(str::to_owned),
            ..EnvironmentPlan::default()
        }
    }

    #[test]
    fn what_is_activated_is_written_as_it_is_read() {
        for (text, expected) in [
            ("", plan(&[], None, None)),
            ("conda train", plan(&[], Some("train"), None)),
            ("module cuda/12.4, venv ~/v", plan(&["cuda/12.4"], None, Some("~/v"))),
            ("module cuda/12.4,nccl, conda none", plan(&["cuda/12.4", "nccl"], Some("none"), None)),
            ("module 'conda','a b', conda 'venv'", plan(&["conda", "a b"], Some("venv"), None)),
            ("venv '~/my venv, old'", plan(&[], None, Some("~/my venv, old"))),
        ] {
            assert_eq!(activated(text).unwrap(), expected, "{text}");
            assert_eq!(activated_text(&expected), text);
        }
        for (text, expected) in [
            ("venv ~/v conda train", "conda train, venv ~/v"),
            ("module conda", "module 'conda'"),
            ("module a , b c, module d", "module a,b,c,d"),
        ] {
            assert_eq!(activated_text(&activated(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_told_with_how_it_is_written() {
        for (text, fault) in [
            ("train", "train stands alone: write conda train, venv train or module train"),
            ("conda a b", "b stands alone: write conda b"),
            ("venv", "venv has no name behind it: write conda NAME"),
            ("conda a, conda b", "conda stands here twice"),
            ("conda -n", "conda \"-n\": it begins with '-'"),
            ("module none,a", "module \"none\": it stands alone"),
            ("venv 'a", "the quote ' is never closed"),
        ] {
            let said = activated(text).unwrap_err();
            assert!(said.starts_with(fault), "{text}: {said}");
        }
    }
}
