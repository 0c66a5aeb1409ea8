//! What libkineto, the tracer inside torch, says to a daemon and hears from it, as bytes. Pure.
//!
//! A datagram is `size u64`, a type of 32 bytes that ends with a NUL, and `size` bytes of body, little-endian:
//! `ctxt` (`gpu i32, pid i32, job i64`) when a GPU is first used, answered by an `i32`; and every five seconds `req`
//! (`wants i32, n i32, job i64`, `n` pids, its own first), answered by the text of a configuration, or by none.
//! The source of the format is libkineto's `IpcFabricConfigClient` and dynolog's `ipcfabric`.

use std::path::Path;

use crate::domain::trace::TraceSpan;

/// The name of the daemon's socket.
pub(super) const DAEMON: &str = "dynolog";
/// How long the name of a client's socket is: `dynoconfigclient` and a UUID.
pub(super) const CLIENT_NAME: usize = 16 + 36;
/// The longest datagram that can be one of libkineto's.
pub(super) const LONGEST: usize = HEAD + 16 + 4 * MOST_PIDS;

/// Seconds in which the tracer runs before what it sees counts.
const WARMUP_S: i64 = 2;
/// So long before a trace its request must be there, milliseconds: the warm-up, and some time to take it in.
pub(super) const LEAD_MS: i64 = WARMUP_S * 1000 + 500;

const HEAD: usize = 8 + TYPE;
const TYPE: usize = 32;
/// A process names itself and its ancestors.
const MOST_PIDS: usize = 256;
/// The bit of `wants` by which a process says that it could begin a trace.
const ACTIVITIES: i32 = 2;

/// A datagram from libkineto.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// It has begun to use a GPU.
    Context {
        /// The process.
        pid: i32,
    },
    /// It asks whether it shall trace.
    Request {
        /// Whether it could begin a trace now.
        free: bool,
        /// The process.
        pid: i32,
    },
}

/// What is wrong with a datagram.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// It is shorter than its head, or not as long as that says.
    #[error("{got} bytes where {expected} were announced")]
    Size {
        /// Bytes behind the head, by the head's word.
        expected: u64,
        /// Bytes behind the head.
        got: usize,
    },
    /// Not a type that is known.
    #[error("unknown type '{0}'")]
    Type(String),
    /// The body is none of its type.
    #[error("a body of {0} bytes that does not fit its type")]
    Body(usize),
}

/// Reads a datagram.
pub(super) fn read(datagram: &[u8]) -> Result<Message, Malformed> {
    let short = || Malformed::Size { expected: 0, got: datagram.len() };
    let (size, rest) = datagram.split_first_chunk::<8>().ok_or_else(short)?;
    let (kind, body) = rest.split_first_chunk::<TYPE>().ok_or_else(short)?;
    let expected = u64::from_le_bytes(*size);
    if expected != body.len() as u64 {
        return Err(Malformed::Size { expected, got: body.len() });
    }
    let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default();
    let wrong = || Malformed::Body(body.len());
    let number = |at: usize| {
        let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(i32::from_le_bytes).ok_or_else(wrong)
    };
    match kind {
        b"ctxt" if body.len() == 16 => Ok(Message::Context { pid: number(4)? }),
        b"req" => {
            let count = usize::try_from(number(4)?).ok().filter(|count| (1..=MOST_PIDS).contains(count));
            if count.is_none_or(|count| body.len() != 16 + 4 * count) {
                return Err(wrong());
            }
            Ok(Message::Request { free: number(0)? & ACTIVITIES != 0, pid: number(16)? })
        }
        b"ctxt" => Err(wrong()),
        other => Err(Malformed::Type(String::from_utf8_lossy(other).into_owned())),
    }
}

/// The answer to a context: how many the process has. Nothing is made of the number.
pub(super) fn context_answer() -> Vec<u8> {
    message("ctxt", &1_i32.to_le_bytes())
}

/// The answer to a request; no configuration where nothing is wanted.
pub(super) fn request_answer(configuration: Option<&str>) -> Vec<u8> {
    message("req", configuration.unwrap_or_default().as_bytes())
}

/// What asks for a trace that goes to `file`, before whose extension libkineto puts `_` and the pid. `first` is the step
/// to begin with, the next one where it is past or unknown; `at` the moment to begin at, milliseconds since the Unix
/// epoch: at least [`LEAD_MS`] from now, or libkineto does not begin.
pub(super) fn configuration(span: TraceSpan, first: Option<u64>, at: i64, file: &Path) -> String {
    let how = match span {
        TraceSpan::Steps(steps) => format!(
            "PROFILE_START_ITERATION={}\nPROFILE_START_ITERATION_ROUNDUP=1\nACTIVITIES_ITERATIONS={steps}\n",
            first.unwrap_or_default()
        ),
        TraceSpan::Millis(millis) => format!(
            "PROFILE_START_TIME={at}\nACTIVITIES_WARMUP_PERIOD_SECS={WARMUP_S}\nACTIVITIES_DURATION_MSECS={millis}\n"
        ),
    };
    format!("ACTIVITIES_LOG_FILE={}\n{how}", file.display())
}

fn message(kind: &str, body: &[u8]) -> Vec<u8> {
    let mut name = [0; TYPE];
    name.iter_mut().zip(kind.bytes()).for_each(|(to, from)| *to = from);
    [&(body.len() as u64).to_le_bytes(), &name[..], body].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(wants: i32, pids: &[i32]) -> Vec<u8> {
        let mut body = [wants.to_le_bytes(), (pids.len() as i32).to_le_bytes()].concat();
        body.extend(0_i64.to_le_bytes());
        body.extend(pids.iter().flat_map(|pid| pid.to_le_bytes()));
        message("req", &body)
    }

    #[test]
    fn a_request_of_torch_2_9_is_read() {
        // as torch 2.9.1 has sent it: `wants` 3, then 1 while it traced
        let head = "28000000000000007265710000000000000000000000000000000000000000000000000000000000";
        let body = "03000000060000000000000000000000b85b0000b75b0000835b0000825b00003653000035530000";
        let text = format!("{head}{body}");
        let bytes: Vec<u8> =
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
        assert_eq!(read(&bytes), Ok(Message::Request { free: true, pid: 0x5bb8 }));
        assert_eq!(read(&request(1, &[7, 1])), Ok(Message::Request { free: false, pid: 7 }));
        let context = [3_i32.to_le_bytes(), 9_i32.to_le_bytes(), [0; 4], [0; 4]].concat();
        assert_eq!(read(&message("ctxt", &context)), Ok(Message::Context { pid: 9 }));
    }

    #[test]
    fn what_is_none_of_its_messages_is_refused() {
        let good = request(2, &[7]);
        assert!(matches!(read(&good[..39]), Err(Malformed::Size { .. })));
        assert!(matches!(read(&good[..good.len() - 1]), Err(Malformed::Size { .. })));
        assert!(matches!(read(&[good.clone(), vec![0]].concat()), Err(Malformed::Size { .. })));
        assert_eq!(read(&message("data", &[0; 16])), Err(Malformed::Type("data".to_owned())));
        assert_eq!(read(&message("ctxt", &[0; 15])), Err(Malformed::Body(15)));
        for count in [0, -1, 2, i32::MAX] {
            let mut lying = good.clone();
            lying[HEAD + 4..HEAD + 8].copy_from_slice(&count.to_le_bytes());
            assert_eq!(read(&lying), Err(Malformed::Body(20)), "{count}");
        }
        let all: Vec<i32> = (1..=MOST_PIDS as i32 + 1).collect();
        assert!(read(&request(2, &all[1..])).is_ok());
        assert!(matches!(read(&request(2, &all)), Err(Malformed::Body(_))));
        assert_eq!(request(2, &all[1..]).len(), LONGEST);
    }

    #[test]
    fn an_answer_has_the_length_of_its_text() {
        let nothing = request_answer(None);
        assert_eq!((nothing.len(), &nothing[..12]), (HEAD, &b"\0\0\0\0\0\0\0\0req\0"[..]));
        let text = configuration(TraceSpan::Steps(3), Some(504), 7, Path::new("/run/t.json"));
        assert_eq!(
            text,
            "ACTIVITIES_LOG_FILE=/run/t.json\nPROFILE_START_ITERATION=504\nPROFILE_START_ITERATION_ROUNDUP=1\n\
             ACTIVITIES_ITERATIONS=3\n"
        );
        let answer = request_answer(Some(&text));
        assert_eq!(answer[0..8], (text.len() as u64).to_le_bytes());
        assert!(answer.ends_with(text.as_bytes()));
        let timed = configuration(TraceSpan::Millis(500), Some(504), 1_790_857_026_000, Path::new("t"));
        assert!(timed.contains("PROFILE_START_TIME=1790857026000\n"), "{timed}");
        assert!(timed.contains("ACTIVITIES_DURATION_MSECS=500\n") && !timed.contains("504"), "{timed}");
        assert_eq!(context_answer().len(), HEAD + 4);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&message("req", &bytes));
        }
    }
}
