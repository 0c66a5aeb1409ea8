//! Recordings that would take far more memory than their size: each goes beyond one limit, and the words say which.

use super::person::Person;
use crate::common::bodies;
use crate::common::in_time::OutputInTime;

const MIB: usize = 1 << 20;
/// The largest chunk that is read, packed and unpacked, is 64 MiB: both at once, and what was made of it.
const MOST_MEMORY: usize = 448;

/// A zstd frame of run-length blocks of 128 KiB each.
fn run_length(blocks: usize) -> Vec<u8> {
    let mut frame = b"\x28\xb5\x2f\xfd\x80\x58".to_vec();
    frame.extend_from_slice(&u32::MAX.to_le_bytes());
    for block in 0..blocks {
        let head = (128 << 10) << 3 | 1 << 1 | u32::from(block + 1 == blocks);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// A message of a chunk, as MCAP writes it.
fn message(channel: u16, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0x05];
    record.extend_from_slice(&(22 + data.len() as u64).to_le_bytes());
    record.extend_from_slice(&channel.to_le_bytes());
    record.extend_from_slice(&[0; 20]);
    record.extend_from_slice(data);
    record
}

/// A recording of one chunk with a good note, and with this in it.
fn with(channel: u16, data: &[u8]) -> Vec<u8> {
    let note = br#"{"first_seq":1,"last_seq":1,"start":0,"end":1,"envelopes":1}"#;
    let inside = [message(1, note), message(channel, data)].concat();
    bodies::recording_with(inside.len() as u64, &bodies::stored(&inside))
}

/// `head`, then `each` again and again with commas between, up to about `size` bytes, then `tail`.
fn list(head: &str, each: &str, tail: &str, size: usize) -> Vec<u8> {
    let count = size / (each.len() + 1);
    let mut all = format!("{each},").repeat(count);
    all.pop();
    [head, &all, tail].concat().into_bytes()
}

/// What `hvtui logs` says of a file, how it ends, and the most memory that it ever had, MiB. The kernel counts that for
/// who waits for a process.
fn logs(recording: &[u8]) -> (String, i32, usize) {
    const WAIT: &str = "import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], dict(os.environ))
_, status, use = os.wait4(pid, 0)
print(use.ru_maxrss, os.waitstatus_to_exitcode(status))";
    let person = Person::new();
    std::fs::write(person.path("bomb.mcap"), recording).unwrap();
    let mut command = person.command("python3");
    let output = command
        .args(["-c", WAIT, crate::common::program::hvtui(), "logs", "bomb.mcap"])
        .output_in_time()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let figures = String::from_utf8_lossy(&output.stdout).into_owned();
    let (kib, code) = figures.trim().split_once(' ').unwrap_or_else(|| panic!("{figures}{said}"));
    (said, code.parse().unwrap(), kib.parse::<usize>().unwrap() / 1024)
}

#[test]
fn vector_12_a_recording_that_unpacks_to_too_much_is_refused() {
    // As much as a reader takes in is read: nothing of the rest is refused for another reason.
    let event =
        r#"{"seq":1,"at":0,"origin":{"run":"01JD3HS0000000000000000000"},"event":{"type":"job_done"}}"#;
    let (said, code, _) = logs(&with(3, &list("[", event, "]", MIB)));
    assert!(code == 0 && !said.contains("chunk") && !said.contains("cut"), "{code}: {said}");

    let in_one = |inside: &str| event.replace(r#""type""#, &format!(r#""x":[{inside}],"type""#));
    let zeros = String::from_utf8(list("", "0", "", 60 * MIB)).unwrap();
    let bombs: [(&str, Vec<u8>, &str, i32); 9] = [
        // beyond what a chunk may have, by its own word
        (
            "says 64 MiB and a byte",
            bodies::recording_with((64 << 20) + 1, &run_length(513)),
            "cut at AT B",
            0,
        ),
        ("says all", bodies::recording_with(u64::MAX, &run_length(8192)), "cut at AT B", 0),
        // beyond its own word
        (
            "says 1 MiB, is 1 GiB",
            bodies::recording_with(1 << 20, &run_length(8192)),
            "1 damaged chunk left out, the first at AT B",
            0,
        ),
        (
            "says 64 MiB, is 1 GiB",
            bodies::recording_with(64 << 20, &run_length(8192)),
            "1 damaged chunk left out, the first at AT B",
            0,
        ),
        // beyond what a message may hold
        (
            "numbers",
            with(3, &list("[", "0", "]", 60 * MIB)),
            "chunk at byte AT: it holds more than a writer puts there: a list of more than 131072",
            65,
        ),
        (
            "events",
            with(3, &list("[", event, "]", 60 * MIB)),
            "chunk at byte AT: it holds more than a writer puts there: a list of more than 131072",
            65,
        ),
        (
            "one event",
            with(3, format!("[{}]", in_one(&zeros)).as_bytes()),
            "chunk at byte AT: it holds more than a writer puts there: more than 1048576 values in one of a list",
            65,
        ),
        (
            "lists",
            with(3, &list("[[", "0", "]]", 60 * MIB)),
            "chunk at byte AT: it holds more than a writer puts there: more than 1048576 values in one of a list",
            65,
        ),
        (
            "the run",
            with(2, &list(r#"{"spec":{"x":["#, "0", "]}}", 60 * MIB)),
            "1 damaged chunk left out, the first at AT B",
            0,
        ),
    ];
    // an empty chunk is nine bytes of head and 44 more
    let at = (bodies::recording_with(0, b"").len() - 9 - 44).to_string();
    for (what, recording, words, wanted) in bombs {
        let words = words.replace("AT", &at);
        let (said, code, memory) = logs(&recording);
        assert!(said.contains(&words), "{what}: {said}");
        assert_eq!(code, wanted, "{what}: {said}");
        assert!(memory <= MOST_MEMORY, "{what}: {memory} MiB for {} bytes", recording.len());
    }
}
