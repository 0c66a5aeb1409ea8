//! Starts of many ranks on one host: what is sent fits into frames.

use bytes::BytesMut;

use super::*;
use crate::domain::run::JobKind;
use crate::launch::request::PlacementSpec;
use crate::launcher::fixtures::{cpu_host, request};
use crate::launcher::plan;
use crate::wire::frame::{Decoder, MAX_FRAME};

/// The sizes of all frames of a start on one host; each is read back as it was sent.
fn frames(kind: JobKind, ranks: u32) -> Vec<(&'static str, usize)> {
    let mut asked = request("python train.py --data /data/set", PlacementSpec::Count(Some(ranks)));
    asked.kind = Some(kind);
    asked.env = [("LONG".to_owned(), "x".repeat(500))].into();
    let plan = plan::plan(&asked, &[cpu_host("a", ranks)], RunId::new(1, 2), Stamp(0)).unwrap();
    let ports = plan.hosts[0].ports as u16;
    let (mut machine, mut actions) =
        RunMachine::start(plan.spec, plan.hosts, plan.rendezvous, String::new(), Stamp(0));
    let ready =
        Reply::Prepared { run: machine.id().clone(), ports: (20_000..20_000 + ports).collect(), image: None };
    actions.extend(machine.handle_reply(Stamp(1), &HostId::from("a"), &ready));
    let mut sizes = Vec::new();
    for action in actions {
        let Action::Send(_, message) = action else { continue };
        let mut bytes = BytesMut::new();
        let sent = message.encode(&mut bytes);
        assert!(sent.is_ok(), "{kind:?}, {ranks} ranks: {sent:?}");
        let name = match &message {
            ToAgent::Prepare(_) => "prepare",
            ToAgent::Commit(_) => "commit",
            _ => continue,
        };
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let read = ToAgent::decode(&decoder.next_frame().unwrap().unwrap()).unwrap().unwrap();
        assert!(read == message, "{name} is read as it was sent");
        sizes.push((name, bytes.len()));
    }
    sizes
}

#[test]
fn a_start_of_a_thousand_ranks_on_a_host_is_far_below_the_largest_frame() {
    for kind in [JobKind::Plain, JobKind::Torch, JobKind::Horovod, JobKind::Tensorflow] {
        for ranks in [512, 1024] {
            let sizes = frames(kind, ranks);
            assert_eq!(sizes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["prepare", "commit"]);
            for (name, bytes) in sizes {
                assert!(bytes < MAX_FRAME / 2, "{kind:?}, {ranks} ranks: {name} of {bytes} bytes");
            }
        }
    }
}
