//! The lines that are run on a host: start the agent, take in its binary, put a wrong one aside.
//!
//! Constant text but for hexadecimal and octal digits made here. A login shell may be bash, dash, tcsh or fish, and all
//! of them read `exec /bin/sh -c '…'` alike as long as the quoted part has no line feed, no single quote, no
//! exclamation mark (tcsh) and no doubled backslash (fish).

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

use super::binary::{AgentBinary, hex};
use super::error::AgentError;
use crate::ssh::transport::SshError;
use crate::wire::handshake::MAGIC;

/// 128 random bits by which our words are told from what else a host prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new() -> Result<Self, AgentError> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SshError::Random)?;
        Ok(Self(hex(&bytes)))
    }

    /// What stands before our words, and before the agent's.
    pub(super) fn marker(&self) -> String {
        format!("{MAGIC}{self}\n")
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `y FOLDER`: `$P` is the folder's path without symbolic links, and `$w` says why another user could put another
/// program there: it is empty when each folder from `/` on is root's or ours, and is writable by no other user or is
/// sticky, where no other user can remove what is ours. Asked from the top down, so that what was found stays true: only
/// root and we could change it. A group that is ours alone is no other: the one that is named after us, is the group we log
/// in with and has no more members (`umask 002`). The bits of the group tell of access lists too, of which they are the
/// most that is given; so a folder with such a list (`+`) is not taken for one of our own group's.
const SAFE: &str = concat!(
    r#"y(){ w="";P="$(cd -P "$1" 2>/dev/null&&pwd -P)"||w="$1 can not be entered";P="${P%/}";r="$P/";a="";"#,
    r#"while [ -z "$w" ];do set -- $(ls -ldn "${a:-/}" 2>/dev/null);a="${a:-/}";"#,
    r#"if [ "$3" = 0 ]||[ -O "$a" ];then case "$1" in d????-??-?*|d????????[tT]*) ;;d????w??-?|d????w??-?.) "#,
    r#"g="$(id -gn)";case "$g:$4:$(getent group "$g")" in "$(id -un):$(id -g):$g:"*:|"$(id -un):$(id -g):$g:"*":$g") ;;"#,
    r#"*) w=g;;esac;;*) w=g;;esac;else w="$a belongs to uid $3 (mode $1), who could put another program there";fi;"#,
    r#"if [ "$w" = g ];then w="$a (uid $3, gid $4, mode $1) can be written to by others: chmod go-w $a";fi;"#,
    r#"a="${a%/}";r="${r#/}";if [ -z "$r" ];then break;fi;a="$a/${r%%/*}";r="/${r#*/}";done;};"#,
);

/// Says what the host is, then becomes the agent where its binary is there, else says so.
///
/// Answers, after the marker: `os=Linux x86_64`, then `at=NUMBER`, `run=PATH` and the agent, which writes the marker
/// again before its first frame; or `absent`. `NUMBER` is the folder's place in the list, from 1. Before that
/// `skip=WHY` for each folder that has the binary and is not safe.
const START: &str = concat!(
    r#"n=@NONCE@;printf "\001HVT1 %s\n" $n;o="$(uname -sm)";echo "os=$o";h="";i=0;case "$o" in @PICK@esac;@SAFE@"#,
    r#"for b in "$XDG_CACHE_HOME" "$HOME/.cache" "$XDG_RUNTIME_DIR" @CACHE@;do i=$((i+1));f="$b/hvtui/agents/$h/hvtui";"#,
    r#"if [ $i -lt @FROM@ ];then continue;fi;case "$b" in /*) if [ -n "$h" ]&&[ -x "$f" ]&&[ -O "$f" ];then "#,
    r#"y "$b/hvtui/agents/$h";f="$P/hvtui";if [ -n "$w" ];then printf "skip=%s\n" "$w";elif [ -x "$f" ]&&[ -O "$f" ];then "#,
    r#"printf "at=%s\nrun=%s\n" $i "$f";exec "$f" agent --stdio --nonce $n;fi;fi;;esac;done;echo absent"#,
);

/// The same for a binary that the site has installed at a known place. Answers like [`START`], `at` left out.
const START_INSTALLED: &str = concat!(
    r#"n=@NONCE@;printf "\001HVT1 %s\n" $n;echo "os=$(uname -sm)";f=@PATH@;"#,
    r#"if [ -f "$f" ]&&[ -x "$f" ];then printf "run=%s\n" "$f";exec "$f" agent --stdio --nonce $n;fi;echo absent"#,
);

/// Picks a folder that is ours, safe ([`SAFE`]), has room and lets programs run, takes the binary from standard input, compares
/// its hash and only then gives it its name. Two clients at once write the same content under the same name: who
/// is first stays, because on a shared file system a running binary must not be replaced. What an upload left
/// behind that was cut off goes: of this host when its process is gone, of others when it is an hour old.
///
/// Answers, after the marker: `skip=FOLDER: WHY` for each folder that will not do, then `at=NUMBER`, `dir=FOLDER` and
/// `ready`; after the bytes `sum=HASH` and `done`. `fail=WHAT` instead: `hash` (no tool), `folder`, `store`.
const UPLOAD: &str = concat!(
    r#"umask 077;n=@NONCE@;h=@HASH@;k=@KIB@;u="";printf "\001HVT1 %s\n" $n;"#,
    r#"for c in sha256sum shasum openssl;do if command -v $c >/dev/null 2>&1;then u=$c;break;fi;done;"#,
    r#"case "$u" in shasum) u="shasum -a 256";;openssl) u="openssl dgst -sha256";;"") echo fail=hash;exit 0;;esac;"#,
    r#"v(){ s="$($u)";s="${s#*= }";printf %s "${s%% *}";};m="$(uname -n)";i=0;d="";w="";@SAFE@"#,
    r#"for b in "$XDG_CACHE_HOME" "$HOME/.cache" "$XDG_RUNTIME_DIR" @CACHE@;do i=$((i+1));w="";"#,
    r#"case "$b" in /*) ;;*) continue;;esac;if [ $i -lt @FROM@ ];then continue;fi;"#,
    r#"if [ -d "$b" ]||e="$(mkdir -p "$b" 2>&1)";then y "$b";b="$P";else w="$b can not be made: ${e##*: }";fi;"#,
    r#"d="$b/hvtui/agents/$h";t="$d/.up.$n.$$.$m";"#,
    r#"for p in "$b/hvtui" "$b/hvtui/agents" "$d";do if [ -n "$w" ];then continue;fi;"#,
    r#"if [ -L "$p" ];then w="$p is a symbolic link";"#,
    r#"elif [ -d "$p" ]||e="$(mkdir "$p" 2>&1)"||[ -d "$p" ];then "#,
    r#"if [ -O "$p" ];then chmod 700 "$p" 2>/dev/null;else w="$p belongs to someone else";fi;"#,
    r#"else w="$p can not be made: ${e##*: }";fi;done;"#,
    r#"if [ -z "$w" ];then y "$d";if [ "$P" = "$d" ];then :;else w="$d leads elsewhere";fi;fi;"#,
    r#"if [ -z "$w" ];then set -- $(df -Pk "$d" 2>/dev/null|tail -n 1);"#,
    r#"if [ "$4" -lt $k ] 2>/dev/null;then w="$d has only $4 KiB free, $k are needed";"#,
    r#"elif e="$({ printf "\043\041/bin/sh\nexit 0\n" >"$t"; } 2>&1)"&&chmod 700 "$t";then "#,
    r#""$t" 2>/dev/null||w="$d lets no program run (mounted noexec)";else w="$d can not be written: ${e##*: }";fi;fi;"#,
    r#"if [ -z "$w" ];then break;fi;rm -f "$t" 2>/dev/null;printf "skip=%s\n" "$w";d="";done;"#,
    r#"if [ -z "$d" ];then echo fail=folder;exit 0;fi;"#,
    r#"for o in "$b/hvtui/agents/"*/.up.*."$m";do q="${o%."$m"}";q="${q##*.}";"#,
    r#"if [ "$o" = "$t" ]||kill -0 "$q" 2>/dev/null;then :;else rm -f "$o";fi;done;"#,
    r#"find "$b/hvtui/agents" -name ".up.*" -mmin +60 -exec rm -f {} + 2>/dev/null;"#,
    r#"c(){ rm -f "$t";};trap c 0;trap "exit 1" 1 2 13 15;printf "at=%s\ndir=%s\nready\n" $i "$d";f="$d/hvtui";"#,
    r#"if cat >"$t";then s="$(v <"$t")";printf "sum=%s\n" "$s";"#,
    r#"if [ "$s" = $h ];then if chmod 500 "$t"&&{ sync "$t" 2>/dev/null;ln "$t" "$f" 2>/dev/null||"#,
    r#"{ [ -f "$f" ]&&[ -x "$f" ]&&[ "$(v <"$f")" = $h ];}||mv -f "$t" "$f";};"#,
    r#"then sync "$d" 2>/dev/null;echo done;else echo fail=store;fi;fi;else echo fail=store;fi"#,
);

/// What the names of uploads begin with that are not whole yet, as [`UPLOAD`] makes them.
const DRAFT: &str = ".up.";

/// Whether a file of this name is an upload that is not whole: none is there once all is over.
pub fn is_upload(name: &str) -> bool {
    name.starts_with(DRAFT)
}

/// Takes a binary that answered with another content out of the way. Answers, after the marker, `moved=PATH`, or
/// `fail=WHY`.
const QUARANTINE: &str = concat!(
    r#"n=@NONCE@;printf "\001HVT1 %s\n" $n;f=@PATH@;g="$f.bad-@BAD@";"#,
    r#"if e="$(mv -f "$f" "$g" 2>&1)";then printf "moved=%s\n" "$g";else printf "fail=%s\n" "${e##*: }";fi"#,
);

/// Which binary is started, and where it may lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<'a> {
    /// Hash of the binary for each platform as `uname -sm` names it.
    pub(super) hashes: &'a [(String, String)],
    /// A folder of the user's choice, tried last.
    pub(super) cache_dir: Option<&'a str>,
    /// The first folder of the list that counts, from 1.
    pub(super) from: u32,
}

/// The line that starts the agent.
pub(super) fn start_line(search: Search<'_>, nonce: &Nonce) -> String {
    // Words of our own and hexadecimal digits.
    let pick =
        search.hashes.iter().fold(String::new(), |pick, (os, hash)| pick + &format!("\"{os}\") h={hash};;"));
    let script = START.replace("@PICK@", &pick);
    line(&folders(&script, search.cache_dir, search.from), nonce)
}

/// The line that starts the agent which is installed at `path` there; `~/` is the home folder.
pub(super) fn start_installed_line(path: &str, nonce: &Nonce) -> String {
    line(&START_INSTALLED.replace("@PATH@", &word(path)), nonce)
}

/// The line that takes in the binary, into the first folder from the `from`th on that will do.
pub(super) fn upload_line(binary: &AgentBinary, cache_dir: Option<&str>, from: u32, nonce: &Nonce) -> String {
    // Room for the folders too.
    let kib = binary.bytes() / 1024 + 64;
    let script = UPLOAD.replace("@HASH@", binary.sha256()).replace("@KIB@", &kib.to_string());
    line(&folders(&script, cache_dir, from), nonce)
}

/// The line that renames the binary at `path`; `bad` are hexadecimal digits.
pub(super) fn quarantine_line(path: &str, bad: &str, nonce: &Nonce) -> String {
    line(&QUARANTINE.replace("@PATH@", &word(path)).replace("@BAD@", bad), nonce)
}

fn folders(script: &str, cache_dir: Option<&str>, from: u32) -> String {
    let cache_dir = cache_dir.map_or_else(|| r#""""#.to_owned(), word);
    script.replace("@SAFE@", SAFE).replace("@CACHE@", &cache_dir).replace("@FROM@", &from.to_string())
}

/// Any path as shell text that holds none of its characters: octal digits for `printf`.
fn word(path: &str) -> String {
    let (home, rest) = match path.strip_prefix("~/") {
        Some(rest) => ("$HOME/", rest),
        None => ("", path),
    };
    let digits = rest.bytes().fold(String::new(), |digits, byte| digits + &format!("\\0{byte:03o}"));
    format!("\"{home}$(printf %b \"{digits}\")\"")
}

/// A script as the one line that is sent.
pub(super) fn line(script: &str, nonce: &Nonce) -> String {
    format!("exec /bin/sh -c '{}'", script.replace("@NONCE@", &nonce.0))
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
