//! The two lines that are run on a host: start the agent, and take in its binary.
//!
//! Constant text but for hexadecimal digits made here. A login shell may be bash, dash, tcsh or fish, and all
//! of them read `exec /bin/sh -c '…'` alike as long as the quoted part has no line feed, no single quote, no
//! exclamation mark (tcsh) and no doubled backslash (fish).

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

use super::binary::{AgentBinary, hex};
use super::error::SshError;
use crate::wire::handshake::MAGIC;

/// 128 random bits by which our words are told from what else a host prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new() -> Result<Self, SshError> {
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

/// Says what the host is, then becomes the agent where its binary is there, else says so.
///
/// Answers, after the marker: `os=Linux x86_64`, then `run=PATH` and the agent, which writes the marker again
/// before its first frame; or `absent`.
const START: &str = concat!(
    r#"n=@NONCE@;h=@HASH@;printf "\001HVT1 %s\n" $n;echo "os=$(uname -sm)";"#,
    r#"for b in "$XDG_CACHE_HOME" "$HOME/.cache" "$XDG_RUNTIME_DIR";do f="$b/hvtui/agents/$h/hvtui";"#,
    r#"case "$b" in /*) if [ -x "$f" ]&&[ -O "$f" ];then echo "run=$f";"#,
    r#"exec "$f" agent --stdio --nonce $n;fi;;esac;done;echo absent"#,
);

/// Picks a folder that is ours, has room and lets programs run, takes the binary from standard input, compares
/// its hash and only then gives it its name. Two clients at once write the same content under the same name.
///
/// Answers, after the marker: `skip=FOLDER: WHY` for each folder that will not do, then `dir=FOLDER` and `ready`; after
/// the bytes `sum=HASH` and `done`. `fail=WHAT` instead: `hash` (no tool), `folder`, `store`.
const UPLOAD: &str = concat!(
    r#"umask 077;n=@NONCE@;h=@HASH@;k=@KIB@;u="";printf "\001HVT1 %s\n" $n;"#,
    r#"for c in sha256sum shasum openssl;do if command -v $c >/dev/null 2>&1;then u=$c;break;fi;done;"#,
    r#"case "$u" in shasum) u="shasum -a 256";;openssl) u="openssl dgst -sha256";;"") echo fail=hash;exit 0;;esac;"#,
    r#"for b in "$XDG_CACHE_HOME" "$HOME/.cache" "$XDG_RUNTIME_DIR";do w="";case "$b" in /*) ;;*) continue;;esac;"#,
    r#"mkdir -p "$b" 2>/dev/null;d="$b/hvtui/agents/$h";t="$d/.up.$n";"#,
    r#"for p in "$b/hvtui" "$b/hvtui/agents" "$d";do if [ -n "$w" ];then continue;fi;"#,
    r#"if [ -L "$p" ];then w="$p is a symbolic link";"#,
    r#"elif [ -d "$p" ]||mkdir "$p" 2>/dev/null||[ -d "$p" ];then "#,
    r#"if [ -O "$p" ];then chmod 700 "$p";else w="$p belongs to someone else";fi;"#,
    r#"else w="$p can not be made";fi;done;"#,
    r#"if [ -z "$w" ];then set -- $(df -Pk "$d" 2>/dev/null|tail -n 1);"#,
    r#"if [ "$4" -lt $k ] 2>/dev/null;then w="$d has only $4 KiB free, $k are needed";"#,
    r#"elif printf "\043\041/bin/sh\nexit 0\n" 2>/dev/null >"$t"&&chmod 700 "$t";then "#,
    r#""$t" 2>/dev/null||w="$d lets no program run (mounted noexec)";else w="$d can not be written";fi;fi;"#,
    r#"if [ -z "$w" ];then break;fi;rm -f "$t" 2>/dev/null;printf "skip=%s\n" "$w";d="";done;"#,
    r#"if [ -z "$d" ]||[ -n "$w" ];then echo fail=folder;exit 0;fi;"#,
    r#"c(){ rm -f "$t";};trap c 0;trap "exit 1" 1 2 13 15;printf "dir=%s\nready\n" "$d";"#,
    r#"if cat >"$t";then s=$($u <"$t");s=${s#*= };s=${s%% *};printf "sum=%s\n" "$s";"#,
    r#"if [ "$s" = $h ];then if chmod 500 "$t"&&{ sync "$t" 2>/dev/null;mv -f "$t" "$d/hvtui";};"#,
    r#"then sync "$d" 2>/dev/null;echo done;else echo fail=store;fi;fi;else echo fail=store;fi"#,
);

/// The line that starts the agent.
pub(super) fn start_line(binary: &AgentBinary, nonce: &Nonce) -> String {
    line(START, binary, nonce)
}

/// The line that takes in the binary.
pub(super) fn upload_line(binary: &AgentBinary, nonce: &Nonce) -> String {
    line(UPLOAD, binary, nonce)
}

fn line(script: &str, binary: &AgentBinary, nonce: &Nonce) -> String {
    // Room for the folders too.
    let kib = binary.bytes() / 1024 + 64;
    let script = script
        .replace("@NONCE@", &nonce.0)
        .replace("@HASH@", binary.sha256())
        .replace("@KIB@", &kib.to_string());
    format!("exec /bin/sh -c '{script}'")
}
