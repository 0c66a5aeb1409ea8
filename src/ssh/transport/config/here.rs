//! What a configuration asks for only on this machine: tickets that are held, keys that lie in a token. Reads a few
//! files, never a private key.

use std::path::Path;

use super::evaluate::Note;
use super::settings::{Need, Settings};
use crate::domain::text::sanitize;

/// The keyword that some distributions set for everybody, and that is of no use without a ticket.
const GSSAPI: &str = "gssapiauthentication";

/// Takes out the needs that do not apply here, and adds those that only files tell.
pub(super) fn settle(settings: &mut Settings, env: &dyn Fn(&str) -> Option<String>) {
    if !has_ticket(env) {
        settings.needs.retain(|need| !need.note.text.starts_with(GSSAPI));
    }
    for file in settings.identities.iter().filter(|file| is_security_key(file)) {
        let text = format!("{} is a key in a security token", file.display());
        let note = Note { place: None, text: sanitize(&text).into_owned() };
        settings.needs.push(Need { note, vital: false });
    }
}

/// Whether a key file's public half says that its private half is in a security token.
fn is_security_key(file: &Path) -> bool {
    let mut public = file.as_os_str().to_owned();
    public.push(".pub");
    let starts_so = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("sk-"));
    starts_so(Path::new(&public))
}

/// Whether a Kerberos ticket can be there.
fn has_ticket(env: &dyn Fn(&str) -> Option<String>) -> bool {
    let cache =
        env("KRB5CCNAME").unwrap_or_else(|| format!("/tmp/krb5cc_{}", rustix::process::getuid().as_raw()));
    match cache.split_once(':') {
        Some(("FILE" | "DIR", path)) => Path::new(path).exists(),
        Some((kind, _)) if !kind.contains('/') => true,
        _ => Path::new(&cache).exists(),
    }
}
