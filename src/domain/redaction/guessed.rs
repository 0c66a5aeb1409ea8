//! What looks like a secret in any text: for what is given to others. It is better that a word too much is hidden.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_automata::meta::Regex;
use regex_automata::util::captures::Captures;

use super::MASK;

/// What each hides is its first group, or all of it where it has none.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let name = r"(?:token|secret|passw|passphrase|api_?-?key|access_?-?key|private_?-?key|credential|auth)";
    let patterns = [
        // NAME=value, name = "value", "name": "value"
        format!(r#"(?i){name}[a-z0-9_-]*["']?\s*[=:]\s*(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"',;\[\]{{}}]+))"#),
        // --token value
        format!(r"(?i)--[a-z0-9-]*{name}[a-z0-9-]*\s+([^\s-]\S*)"),
        // https://user:password@host
        r"[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@".to_owned(),
        // what the providers' own look like
        r"(?-u:\b)(?:hf_|ghp_|gho_|ghs_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}"
            .to_owned(),
        r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?".to_owned(),
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?".to_owned(),
    ];
    patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect()
});

/// The text with [`MASK`] in the place of what looks like a secret.
pub fn hide(text: &str) -> Cow<'_, str> {
    let mut hidden = Cow::Borrowed(text);
    for pattern in PATTERNS.iter() {
        if let Some(new) = hide_one(pattern, &hidden) {
            hidden = Cow::Owned(new);
        }
    }
    hidden
}

fn hide_one(pattern: &Regex, text: &str) -> Option<String> {
    let mut out = String::new();
    let mut done = 0;
    let mut found = pattern.create_captures();
    for all in pattern.captures_iter(text) {
        found.clone_from(&all);
        let Some((start, end)) = secret(&found) else { continue };
        // a variable of a shell names a value, and is none; what is hidden stays so
        let value = text.get(start..end)?;
        if value.starts_with('$') || value.contains(MASK) {
            continue;
        }
        out.push_str(text.get(done..start)?);
        out.push_str(MASK);
        done = end;
    }
    if done == 0 {
        return None;
    }
    out.push_str(text.get(done..)?);
    Some(out)
}

/// The first group that was found, else all.
fn secret(found: &Captures) -> Option<(usize, usize)> {
    let groups = (1..found.group_len()).find_map(|group| found.get_group(group));
    let span = groups.or_else(|| found.get_group(0))?;
    Some((span.start, span.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_hidden() {
        let all = [
            ("env = { HF_TOKEN = \"abc def\" }", "env = { HF_TOKEN = \"•••\" }"),
            ("export WANDB_API_KEY=0123abcd; python", "export WANDB_API_KEY=•••; python"),
            ("\"db_password\": \"x y\", \"a\": 1", "\"db_password\": \"•••\", \"a\": 1"),
            ("--auth-token abc --epochs 3", "--auth-token ••• --epochs 3"),
            ("git clone https://li:geheim@example.org/x", "git clone https://li:•••@example.org/x"),
            ("using hf_abcdefghijklmnop now", "using ••• now"),
            ("Bearer eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2ln", "Bearer •••"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb\n-----END OPENSSH PRIVATE KEY-----\n", "•••\n"),
        ];
        for (text, expected) in all {
            assert_eq!(hide(text), expected, "{text}");
            assert_eq!(hide(expected), expected, "once is enough");
        }
    }

    #[test]
    fn each_pattern_is_one() {
        assert_eq!(PATTERNS.len(), 6);
    }

    #[test]
    fn what_is_none_stays() {
        let plain = "identity = \"~/.ssh/id\"\nsecret_env = [\"HF_TOKEN\"]\nloss 0.31 at http://127.0.0.1:8080/x\nHF_TOKEN=$HF_TOKEN";
        assert_eq!(hide(plain), plain);
    }
}
