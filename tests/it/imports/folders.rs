//! Folders with traces and other files among them.

use std::path::Path;

use serde_json::{Value, json};

use super::tensorboard::crc;
use super::{fixture, imported, left_out, why};
use crate::local_runs::Person;

/// A trace of so many steps from a number on, one each 10 ms; they begin so many milliseconds after the first possible moment.
pub(super) fn trace(pid: u64, numbers: std::ops::Range<u64>, at_ms: u64, info: Option<(u32, u32)>) -> Value {
    let first = numbers.start;
    let steps: Vec<Value> = numbers
        .map(|number| {
            let ts = 1_000_000 + 1_000 * at_ms + 10_000 * (number - first);
            json!({ "ph": "X", "cat": "user_annotation", "name": format!("ProfilerStep#{number}"), "pid": pid, "tid": pid,
                "ts": ts, "dur": 9_000 + pid })
        })
        .collect();
    let mut whole = json!({
        "schemaVersion": 1, "traceEvents": steps, "baseTimeNanoseconds": 1_790_857_026_000_000_000_u64,
    });
    if let Some((rank, world)) = info {
        whole["distributedInfo"] = json!({ "backend": "gloo", "rank": rank, "world_size": world });
    }
    whole
}

pub(super) fn put(folder: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// What an import says that fails.
pub(super) fn refused(person: &Person, args: &[&str]) -> String {
    let out = person.run(&[&["import"], args].concat());
    assert_eq!(out.status.code(), Some(65), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn what_lies_beside_the_traces_is_left_out_and_named() {
    let person = Person::new(1);
    for rank in 0..2 {
        let text = trace(u64::from(rank), 0..3, 0, Some((rank, 3))).to_string();
        put(person.home(), &format!("log/rank{rank}.json"), text);
    }
    put(person.home(), "log/README.txt", "how it was made");
    put(person.home(), "log/memory_timeline.html", "<html></html>");
    put(person.home(), "log/rank2.json", "");
    let version = [&[24_u8, 0, 0, 0, 0, 0, 0, 0][..], &crc(&24_u64.to_le_bytes())].concat();
    let event = [&[9_u8][..], &1_795_000_000_f64.to_le_bytes(), &[0x1a, 13], b"brain.Event:2"].concat();
    put(person.home(), "log/events.out.tfevents.1.vm.1.0", [&version[..], &event, &crc(&event)].concat());
    put(person.home(), "log/older/rank0.json", trace(0, 0..3, 0, Some((0, 2))).to_string());
    let told = imported(&person, &["log", "-o", "log.mcap"]);
    assert_eq!(
        (&told["format"], &told["told_ranks"], &told["ranks"]),
        (&"kineto".into(), &2.into(), &3.into())
    );
    assert_eq!(left_out(&told, "files that are no traces of the run"), Some(3));
    let words = why(&told, "files that are no traces of the run");
    assert!(words.contains("rank2.json (empty: nothing was written into it)"), "{words}");
    assert!(
        words.contains("README.txt (no JSON list or object, it begins with `how it was made`)"),
        "{words}"
    );
    assert_eq!(
        why(&told, "event files of TensorBoard"),
        "events.out.tfevents.1.vm.1.0: import them by themselves for their scalars"
    );
    assert_eq!(why(&told, "files in folders below"), "older/rank0.json: import their folder by itself");
    // a file that is named is not passed over
    assert!(refused(&person, &["log/rank0.json", "log/README.txt"]).contains("README.txt: no JSON list"));
    // TensorBoard's own layout
    let text = trace(1, 0..3, 0, None).to_string();
    put(person.home(), "board/plugins/profile/run/vm.pt.trace.json", text);
    assert_eq!(imported(&person, &["board", "-o", "board.mcap"])["steps"]["count"], 3);
    put(person.home(), "none/a.txt", "a");
    put(person.home(), "none/b.json", "{}");
    let words = refused(&person, &["none"]);
    assert!(
        words.starts_with("hvtui: none: a folder without a trace among 2 files; a.txt: no JSON"),
        "{words}"
    );
    std::fs::create_dir(person.home().join("bare")).unwrap();
    assert!(refused(&person, &["bare"]).contains("bare: a folder without files"));
}

#[test]
fn traces_that_cant_stand_for_the_event_files_leave_them() {
    let person = Person::new(1);
    let mut value = vec![0x0a, 4];
    value.extend(b"loss");
    value.push(0x15);
    value.extend(0.5_f32.to_le_bytes());
    let summary = [&[0x0a, value.len() as u8][..], &value].concat();
    let event =
        [&[9_u8][..], &1_795_000_000_f64.to_le_bytes(), &[0x10, 3, 0x2a, summary.len() as u8], &summary]
            .concat();
    let version = [&[9_u8][..], &1_795_000_000_f64.to_le_bytes(), &[0x1a, 13], b"brain.Event:2"].concat();
    let record = |data: &[u8]| {
        let length = (data.len() as u64).to_le_bytes();
        [&length[..], &crc(&length), data, &crc(data)].concat()
    };
    let events = [record(&version), record(&event)].concat();
    put(person.home(), "log/events.out.tfevents.1.vm.1.0", events);
    let timeline = std::fs::read(fixture("horovod.json")).unwrap();
    put(person.home(), "log/timelines/0.json", &timeline);
    put(person.home(), "log/timelines/1.json", &timeline);
    put(person.home(), "log/timelines/config.json", r#"{"schemaVersion": 2, "layers": []}"#);
    let told = imported(&person, &["log", "-o", "log.mcap"]);
    assert_eq!(told["format"], "tensorboard", "{told:#}");
    assert_eq!(left_out(&told, "traces that can't be taken together"), Some(2));
    assert_eq!(left_out(&told, "files that are no traces of the run"), Some(1));
    let words = why(&told, "traces that can't be taken together");
    assert!(words.contains("timelines/1.json (a horovod trace: import it by itself)"), "{words}");
    // a version of some schema makes no trace
    let words = refused(&person, &["log/timelines/config.json"]);
    assert!(words.contains("a JSON object without `traceEvents`"), "{words}");
}
