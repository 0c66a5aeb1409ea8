//! Values of secret variables in what ranks print, to a client that never had them: very long ones, in the forms in which
//! programs write them, and from what outlives its rank.

use std::process::{Child, Command};

use super::person::Person;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until};

/// Longer than a piece of a rank's file that is read at once, and with characters that each form writes in its own way.
fn value() -> String {
    let part = |number: u64| format!("{:x}/\"é+'", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..800).map(part).collect::<Vec<_>>().concat()
}

const FORMS: &str = r#"
import base64, json, os, shlex, sys, time, urllib.parse
value = os.environ["TOKEN"]
short = os.environ["SHORT"]
for name, one in (("long", value), ("short", short)):
    print(f"{name} plain={one}.")
    print(f"{name} json={json.dumps({'token': one})}.")
    print(f"{name} json={json.dumps({'token': one}, ensure_ascii=False)}.")
    print(f"{name} url={urllib.parse.quote(one, safe='')}.")
    print(f"{name} form={urllib.parse.quote_plus(one)}.")
    print(f"{name} base64={base64.b64encode(b'user:' + one.encode()).decode()}.")
    print(f"{name} base64={base64.urlsafe_b64encode(one.encode()).decode()}.")
print("after the forms", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
if os.fork() == 0:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("stray", "w").close()
    while not os.path.exists("go-stray"):
        time.sleep(0.02)
    print(f"\nstray={value}.\nstray={short}.", flush=True)
    os._exit(0)
while not os.path.exists("stray"):
    time.sleep(0.02)
print(f"the end\nlast={value}", end="")
"#;

struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach(person: &Person, run: &str, name: &str) -> Client {
    let mut hvtui: Command = person.command(crate::common::program::hvtui());
    let out = std::fs::File::create(person.path(name)).unwrap();
    let err = out.try_clone().unwrap();
    Client(hvtui.args(["attach", run]).stdout(out).stderr(err).spawn().unwrap())
}

#[test]
fn vector_06_a_value_is_hidden_in_every_form_and_at_every_length() {
    let person = Person::new();
    let (long, short) = (value(), "p\"ss/wörd+'17 of mine");
    std::fs::write(person.path("forms.py"), FORMS).unwrap();
    let mut launch = person.command(crate::common::program::hvtui());
    launch.args([
        "run",
        "--detach",
        "-np",
        "1",
        "--secret-env",
        "TOKEN",
        "--secret-env",
        "SHORT",
        "--",
        "python3",
        "forms.py",
    ]);
    let launched = launch.env("TOKEN", &long).env("SHORT", short).output_in_time().unwrap();
    assert!(launched.status.success(), "{}", String::from_utf8_lossy(&launched.stderr));
    let run = String::from_utf8(launched.stdout).unwrap().trim().to_owned();

    let early = attach(&person, &run, "early");
    let said = |name: &str| std::fs::read_to_string(person.path(name)).unwrap_or_default();
    until("the forms", || said("early").contains("after the forms"));
    std::fs::write(person.path("go"), "").unwrap();
    // the rank has ended, what it has left has not: a client that comes now cannot ask its rank-wrap
    until("the rank's end", || person.spool().join("exit-0.json").exists());
    // what the first client has recorded by now would not be printed again
    std::fs::rename(person.path(".local/state/hvtui/runs"), person.path("recorded")).unwrap();
    let between = attach(&person, &run, "between");
    until("the rank's last line", || said("between").contains("the end\n"));
    std::fs::write(person.path("go-stray"), "").unwrap();
    for mut client in [early, between] {
        end_of(&mut client.0);
    }
    std::fs::remove_dir_all(person.path(".local/state/hvtui/runs")).unwrap();
    let late = person.hvtui(&["logs", &run]);
    let late = String::from_utf8([late.out, late.err].concat()).unwrap();
    let raw = String::from_utf8_lossy(&person.printed()).into_owned();
    assert!(raw.contains(&long) && raw.contains("stray="), "the rank's own file is left alone");

    let known = ["9e3779b97f4a7c15", "of mine", "of%20mine", "of+mine"];
    for (who, text) in [("early", said("early")), ("between", said("between")), ("late", late)] {
        assert!(known.iter().all(|part| !text.contains(part)), "{who}: {text}");
        for name in ["long", "short"] {
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(&format!("{name} "))).collect();
            assert_eq!(lines.len(), 7, "{who}: {text}");
            for line in &lines {
                assert!(
                    line.contains("•••") && line.chars().count() < 60,
                    "{who}: one mask of one length: {line}"
                );
            }
            // of a line that is too long to be shown its end is left out
            assert!(lines[0].contains(&format!("{name} plain=•••")), "{who}: {}", lines[0]);
        }
        assert!(text.contains("last=•••"), "{who}: {text}");
        assert_eq!(text.matches("stray=•••").count(), 2, "{who}: {text}");
    }
}
