use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::agent::outgoing::{Queue, lanes};
use crate::domain::fixtures::host_run;
use crate::domain::run::HostRun;

fn ask(number: u64) -> AskPreflight {
    let spec = HostRun { name: String::new(), grace_ms: 0, ..host_run(Vec::new()) };
    AskPreflight { ask: number, spec, copied: false }
}

/// A look that begins with a folder, tells when it does, and waits there until it is let go.
fn stuck(patience: Duration) -> (Desk, Queue, UnboundedReceiver<u64>, Sender<()>) {
    let (begun, begins) = unbounded_channel();
    let (go, gate) = channel();
    let gate = Mutex::new(gate);
    let probe = move |ask: &AskPreflight, report: &Report| {
        report.found(Finding::new(Mark::Good, format!("question {}", ask.ask)));
        report.step(format!("folder /gone/{}", ask.ask));
        begun.send(ask.ask).unwrap();
        gate.lock().unwrap().recv().unwrap();
        report.found(Finding::new(Mark::Good, "folder"));
    };
    let (out, queue) = lanes();
    (Desk::with(Arc::new(probe), patience, out), queue, begins, go)
}

/// The next look that has begun.
async fn begun(begins: &mut UnboundedReceiver<u64>) -> u64 {
    begins.recv().await.unwrap()
}

async fn told(queue: &mut Queue) -> String {
    match queue.next().await {
        FromAgent::Preflight(told) => {
            let words: Vec<&str> = told.findings.iter().map(|finding| finding.text.as_str()).collect();
            format!("{}: {}", told.ask, words.join(" · "))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_newest_question_replaces_those_that_wait() {
    let (desk, mut queue, mut begins, go) = stuck(Duration::from_secs(60));
    desk.ask(ask(1));
    assert_eq!(begun(&mut begins).await, 1);
    for number in 2..=9 {
        desk.ask(ask(number));
    }
    go.send(()).unwrap();
    assert_eq!(begun(&mut begins).await, 9);
    go.send(()).unwrap();
    assert_eq!(told(&mut queue).await, "9: question 9 · folder", "the older ones are not answered");
}

#[tokio::test]
async fn a_look_that_hangs_is_told_as_far_as_it_came_and_in_full_when_it_ends() {
    let (desk, mut queue, mut begins, go) = stuck(Duration::from_millis(20));
    desk.ask(ask(1));
    assert_eq!(begun(&mut begins).await, 1);
    let late = told(&mut queue).await;
    assert!(late.ends_with(": no answer in 0 s"), "{late}");
    go.send(()).unwrap();
    assert_eq!(told(&mut queue).await, "1: question 1 · folder");
}

#[tokio::test]
async fn looks_that_hang_are_few() {
    let (desk, mut queue, mut begins, go) = stuck(Duration::from_millis(20));
    for number in 1..=3 {
        desk.ask(ask(number));
        assert_eq!(begun(&mut begins).await, number);
        let late = told(&mut queue).await;
        assert!(late.starts_with(&format!("{number}: ")) && late.ends_with("no answer in 0 s"), "{late}");
    }
    desk.ask(ask(4));
    let refused = told(&mut queue).await;
    assert!(refused.starts_with("4: 3 earlier checks have not ended (folder /gone/1, "), "{refused}");
    // when one of them ends, what was refused is looked at without being asked again
    go.send(()).unwrap();
    assert_eq!(begun(&mut begins).await, 4);
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    let mut answer = told(&mut queue).await;
    if answer.ends_with("no answer in 0 s") {
        answer = told(&mut queue).await;
    }
    assert_eq!(answer, "4: question 4 · folder");
    desk.ask(ask(5));
    go.send(()).unwrap();
    let answer = told(&mut queue).await;
    assert!(answer.starts_with("5: "), "{answer}");
}
