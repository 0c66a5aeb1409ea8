//! Tokens in values: `%h` and its like, `${NAME}`, and `~`. A token that is not known is an error, never text.

use std::path::{Path, PathBuf};

/// What tokens stand for.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    /// `%d`, `~`: the home folder here.
    pub(super) home: &'a Path,
    /// `%n`: the name as it was given.
    pub(super) name: &'a str,
    /// `%h`: the address.
    pub(super) address: &'a str,
    /// `%p`
    pub(super) port: u16,
    /// `%r`: the login name there.
    pub(super) user: &'a str,
    /// `%u`: the login name here.
    pub(super) local_user: &'a str,
    /// `%k`: the name under which the host's key is known.
    pub(super) key_alias: &'a str,
    /// `${NAME}`
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

impl Tokens<'_> {
    /// A path with `~`, `%` tokens and `${NAME}`.
    pub(super) fn path(&self, text: &str) -> Result<PathBuf, String> {
        let text = self.variables(&self.percent(text, "dhiknpru")?)?;
        if text == "~" {
            return Ok(self.home.to_owned());
        }
        match text.strip_prefix("~/") {
            Some(rest) => Ok(self.home.join(rest)),
            None if text.starts_with('~') => {
                Err(format!("`{text}`: the home of another user is not looked up"))
            }
            None if text.starts_with('/') => Ok(PathBuf::from(text)),
            None => Ok(std::path::absolute(&text).map_err(|error| error.to_string())?),
        }
    }

    /// `%` tokens, those of `allowed` and `%%`.
    pub(super) fn percent(&self, text: &str, allowed: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push(letter);
                continue;
            }
            let token = letters.next();
            if token.is_some_and(|token| token != '%' && !allowed.contains(token)) {
                return Err(format!("the token %{} in `{text}`", token.unwrap_or_default()));
            }
            match token {
                Some('%') => out.push('%'),
                Some('d') => out.push_str(&self.home.to_string_lossy()),
                Some('h') => out.push_str(self.address),
                Some('i') => out.push_str(&rustix::process::getuid().as_raw().to_string()),
                Some('k') => out.push_str(self.key_alias),
                Some('n') => out.push_str(self.name),
                Some('p') => out.push_str(&self.port.to_string()),
                Some('r') => out.push_str(self.user),
                Some('u') => out.push_str(self.local_user),
                _ => return Err(format!("a lone % in `{text}`")),
            }
        }
        Ok(out)
    }

    fn variables(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (name, after) = behind.split_once('}').ok_or_else(|| format!("an open ${{ in `{text}`"))?;
            out.push_str(before);
            out.push_str(&(self.env)(name).ok_or_else(|| format!("the variable {name} is not set"))?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_expanded_and_unknown_ones_refused() {
        let env = |name: &str| (name == "KEYS").then(|| "/keys".to_owned());
        let tokens = Tokens {
            home: Path::new("/home/li"),
            name: "gpu",
            address: "gpu.lan",
            port: 2222,
            user: "ml",
            local_user: "li",
            key_alias: "gpu",
            env: &env,
        };
        let path = |text: &str| tokens.path(text).map(|path| path.display().to_string());
        assert_eq!(path("~/.ssh/%r@%h:%p").unwrap(), "/home/li/.ssh/ml@gpu.lan:2222");
        assert_eq!(path("%d/%n/%u/%%/%k").unwrap(), "/home/li/gpu/li/%/gpu");
        assert_eq!(path("${KEYS}/a").unwrap(), "/keys/a");
        for bad in ["%C", "x%", "${NO}/a", "${KEYS", "~other/a"] {
            assert!(path(bad).is_err(), "{bad}");
        }
        assert!(tokens.percent("%d", "hp").is_err());
    }
}
