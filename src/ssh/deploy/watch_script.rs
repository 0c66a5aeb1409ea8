//! The line that tells of a host without an agent: the kernel's files and nvidia-smi, again and again.
//!
//! Constant text like the lines of `script`. Each answer is a section: the byte 1, its name, a line feed, what the
//! command printed; then a section `rc` with its exit status. A section `end` closes one reading. It ends with its
//! connection: it is not read any more then, and `printf` fails.

use super::deployment::TelemetryAsk;
use super::script::{Nonce, line};

const WATCH: &str = concat!(
    r#"n=@NONCE@;printf "\001HVT1 %s\n" $n;LC_ALL=C;export LC_ALL;"#,
    r#"r(){ printf "\001%s\n" $1;shift;"$@" 2>&1;printf "\001rc\n%s\n" $?;};"#,
    r#"t="";if command -v timeout >/dev/null 2>&1;then t="timeout 10";fi;"#,
    r#"r hostname uname -n;r kernel uname -r;r arch uname -m;r user id -un;r cpus getconf _NPROCESSORS_ONLN;"#,
    r#"r boot cat /proc/sys/kernel/random/boot_id;r ssh echo "$SSH_CONNECTION";"#,
    r#"while :;do r stat head -n 1 /proc/stat;r meminfo cat /proc/meminfo;r loadavg cat /proc/loadavg;"#,
    r#"r net cat /proc/net/dev;r gpus $t nvidia-smi --query-gpu=@GPUS@ --format=csv,noheader,nounits;"#,
    r#"r apps $t nvidia-smi --query-compute-apps=@APPS@ --format=csv,noheader,nounits;"#,
    r#"printf "\001end\n"||exit 0;sleep @EVERY@;done"#,
);

/// The line that asks for this.
pub(super) fn watch_line(ask: &TelemetryAsk, nonce: &Nonce) -> String {
    let script = WATCH
        .replace("@GPUS@", ask.gpu_fields)
        .replace("@APPS@", ask.app_fields)
        .replace("@EVERY@", &ask.every.as_secs().max(1).to_string());
    line(&script, nonce)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn each_shell_tells_of_this_machine_and_ends_with_its_reader() {
        let folder = tempfile::tempdir().unwrap();
        let smi = folder.path().join("nvidia-smi");
        std::fs::write(&smi, "#!/bin/sh\necho \"$1\"\nexit 3\n").unwrap();
        std::fs::set_permissions(&smi, PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        for shell in ["sh", "bash", "dash", "tcsh", "fish"] {
            let nonce = Nonce::new().unwrap();
            let every = std::time::Duration::from_secs(1);
            let ask = TelemetryAsk { every, gpu_fields: "index,name", app_fields: "pid" };
            let text = watch_line(&ask, &nonce);
            let mut command = Command::new(shell);
            command.args(["-c", &text]).env("PATH", &path).stdin(Stdio::null()).stdout(Stdio::piped());
            let Ok(mut child) = command.spawn() else {
                assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "{shell} is missing");
                eprintln!("skipped: {shell} is not installed");
                continue;
            };
            let mut said = Vec::new();
            let mut reader = BufReader::new(child.stdout.take().unwrap());
            for _ in 0..2 {
                while !said.ends_with(b"\x01end\n") {
                    assert!(reader.read_until(b'\n', &mut said).unwrap() > 0, "{shell} ended");
                }
                let text = String::from_utf8_lossy(&said).into_owned();
                let wanted =
                    ["\u{1}gpus\n--query-gpu=index,name\n\u{1}rc\n3\n", "\u{1}stat\ncpu ", "MemTotal:"];
                assert!(wanted.iter().all(|part| text.contains(part)), "{shell}: {text}");
                said.clear();
            }
            drop(reader);
            child.wait().unwrap();
        }
    }
}
