use proptest::prelude::*;

use super::*;

fn said(line: &str) -> NcclSaid<'_> {
    parse(line).unwrap_or_else(|| panic!("not NCCL's: {line}")).said
}

fn transport(line: &str) -> (u32, &str, &str, Option<u32>, bool) {
    match said(line) {
        NcclSaid::Connection { channel, transport: Transport { class, way, device, gdr } } => {
            (channel, class, way, device, gdr)
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn versions() {
    let version = NcclSaid::Version { nccl: "2.18.1", cuda: Some("12.1") };
    assert_eq!(said("NCCL version 2.18.1+cuda12.1"), version);
    assert_eq!(said("vm:1:2 [0] NCCL INFO NCCL version 2.18.1+cuda12.1"), version);
    assert_eq!(said("[2026-01-02 03:04:05] NCCL version 2.18.1+cuda12.1"), version);
    assert_eq!(said("[1,0]<stdout>:NCCL version 2.10.3"), NcclSaid::Version { nccl: "2.10.3", cuda: None });
    assert_eq!(said("vm:1:2 [0] NCCL INFO cudaDriverVersion 12040"), NcclSaid::Driver(12040));
    assert_eq!(said("vm:1:2 [0] NCCL INFO NCCL git version HEAD 1a2b"), NcclSaid::Other);
    assert_eq!(parse("this needs NCCL version 2.18.1 or later"), None);
}

#[test]
fn heads_of_lines() {
    for (line, pid) in [
        ("gpu-a:11:12 [3] NCCL INFO Using network IB", Some(11)),
        ("[2026-01-02 03:04:05] gpu-a:11:12 [3] NCCL INFO Using network IB", Some(11)),
        ("03:04:05 gpu-a:11:12 [3] NCCL INFO Using network IB", Some(11)),
        ("[1,0]<stdout>:gpu-a:11:12 [3] NCCL INFO Using network IB\r", Some(11)),
        ("[default0]:gpu-a:11:12 [3] NCCL INFO Using network IB ", Some(11)),
        ("NCCL INFO Using network IB", None),
        ("::: [3] NCCL INFO Using network IB", None),
    ] {
        assert_eq!(parse(line), Some(NcclLine { pid, said: NcclSaid::Network("IB") }), "{line}");
    }
}

#[test]
fn interfaces() {
    for line in [
        "vm:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "vm:1:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>",
        "vm:1:2 [0] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.1<0>",
        "vm:1:2 [0] NCCL INFO Bootstrap : Using eth0:fe80::1%eth0<0>",
    ] {
        assert_eq!(said(line), NcclSaid::Bootstrap("eth0"), "{line}");
    }
    let devices =
        |network, names: &[(u32, &'static str)]| NcclSaid::Devices { network, names: names.to_vec() };
    for (line, expected) in [
        (
            "vm:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.1.0.1<0>",
            devices("Socket", &[(0, "eth0"), (1, "eth1")]),
        ),
        (
            "vm:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
            devices("IB", &[(0, "mlx5_0"), (1, "mlx5_1")]),
        ),
        (
            "vm:1:2 [0] NCCL INFO NET/IB : Made virtual device [8] name=mlx5_0+mlx5_1 speed=800000 ndevs=2",
            devices("IB", &[(8, "mlx5_0+mlx5_1")]),
        ),
        ("vm:1:2 [0] NCCL INFO NET/IB : No device found.", NcclSaid::Other),
        ("vm:1:2 [0] NCCL INFO NET/Plugin: Using internal network plugin.", NcclSaid::Other),
        ("vm:1:2 [0] NCCL INFO NET/Socket: Using 2 threads and 8 sockets per thread", NcclSaid::Other),
        ("vm:1:2 [0] NCCL INFO Using network AWS Libfabric", NcclSaid::Network("AWS Libfabric")),
        ("vm:1:2 [0] NCCL INFO Using non-device net plugin version 0", NcclSaid::Other),
    ] {
        assert_eq!(said(line), expected, "{line}");
    }
}

#[test]
fn transports() {
    for (line, expected) in [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", (0, "P2P", "CUMEM", None, false)),
        ("Channel 03/0 : 0[0] -> 1[1] via P2P/IPC", (3, "P2P", "IPC", None, false)),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer", (0, "P2P", "direct pointer", None, false)),
        ("Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/1[1]", (0, "P2P", "indirect", None, false)),
        ("Channel 01 : 0[1a000] -> 1[1b000] via SHM/direct/direct", (1, "SHM", "direct", None, false)),
        ("Channel 01 : 0[0] -> 1[1] via SHM/direct", (1, "SHM", "direct", None, false)),
        ("Channel 00/0 : 0[0] -> 2[0] [send] via NET/Socket/0", (0, "NET", "Socket", Some(0), false)),
        ("Channel 00 : 4[31000] -> 10[ca000] [receive] via NET/IB/2", (0, "NET", "IB", Some(2), false)),
        (
            "Channel 02/0 : 2[2] -> 0[0] [send] via NET/IB/1(3)/GDRDMA(PCI)/Shared",
            (2, "NET", "IB", Some(1), true),
        ),
        (
            "Channel 11/0 : 2[2] -> 0[0] [receive] via NET/AWS Libfabric/4/GDRDMA",
            (11, "NET", "AWS Libfabric", Some(4), true),
        ),
        ("CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA", (0, "COLLNET", "SHARP", Some(0), true)),
    ] {
        assert_eq!(transport(&format!("vm:1:2 [0] NCCL INFO {line}")), expected, "{line}");
    }
    assert_eq!(said("vm:1:2 [0] NCCL INFO Channel 00/02 :    0   1"), NcclSaid::Other);
}

#[test]
fn communicators_and_channels() {
    let ready = NcclSaid::Ready { rank: 1, ranks: 4, device: 2 };
    for line in [
        "comm 0x55f08a rank 1 nranks 4 cudaDev 2 busId 1a000 - Init COMPLETE",
        "comm 0x55f08a rank 1 nranks 4 cudaDev 2 nvmlDev 2 busId 30 commId 0x438c - Init COMPLETE",
        "ncclCommInitRank comm 0x55f0 rank 1 nranks 4 cudaDev 2 nvmlDev 2 busId 30 commId 0x4 - Init COMPLETE",
        "[Rank 1] ncclCommInitRank comm 0x55f0 rank 1 nranks 4 cudaDev 2 nvmlDev 2 busId 30 commId 0x4 - Init COMPLETE",
        "ncclCommSplit comm 0x5 rank 1 nranks 4 cudaDev 2 nvmlDev 2 busId 30 parent 0x1 color 1 key 0 - Init COMPLETE",
    ] {
        assert_eq!(said(&format!("vm:1:2 [2] NCCL INFO {line}")), ready, "{line}");
    }
    assert_eq!(
        said(
            "vm:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 4 cudaDev 2 busId 30 commId 0x4 - Init START"
        ),
        NcclSaid::Other
    );
    let channels =
        |collectives, nvls, point_to_point| NcclSaid::Channels { collectives, nvls, point_to_point };
    for (line, expected) in [
        ("8 coll channels, 16 p2p channels, 2 p2p channels per peer", channels(8, 0, 16)),
        ("8 coll channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer", channels(8, 0, 16)),
        (
            "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
            channels(24, 16, 32),
        ),
    ] {
        assert_eq!(said(&format!("vm:1:2 [0] NCCL INFO {line}")), expected, "{line}");
    }
}

#[test]
fn warnings() {
    let text = "Call to connect to 10.0.0.2<40001> failed : Connection refused";
    for head in [
        "gpu-a:11:12 [3] misc/socket.cc:484 NCCL WARN ",
        "[2026-01-02 03:04:05] gpu-a:11:12 [3] misc/socket.cc:484 NCCL WARN ",
        "gpu-a:11:12 [3] src/misc/socket.cc:484 (ncclSocketConnect) NCCL WARN ",
        "gpu-a:11:12 [3] /home/li/NCCL build/socket.cc:484 NCCL WARN ",
    ] {
        let line = format!("{head}{text}");
        assert_eq!(parse(&line), Some(NcclLine { pid: Some(11), said: NcclSaid::Warning(text) }), "{line}");
    }
    let text = "Mismatched NCCL version detected : rank 0 version 21801 rank 1 version 22703";
    assert_eq!(said(&format!("vm:1:2 [0] init.cc:7 NCCL WARN {text}")), NcclSaid::Warning(text));
}

#[test]
fn other_lines_are_none_of_nccl() {
    for line in
        ["", "NCCL", "NCCL ", "NCCL INFO", "nccl info", "step 1 loss 0.5", "NCCL version ", "NCCL version x"]
    {
        assert_eq!(parse(line), None, "{line}");
    }
    assert_eq!(parse(&format!("{}NCCL INFO Using network IB", " ".repeat(HEAD))), None, "too far behind");
}

fn facts(lines: &[&str]) -> NcclFacts {
    let mut facts = NcclFacts::default();
    for line in lines {
        facts.push(&format!("gpu-a:11:12 [0] NCCL INFO {line}"));
    }
    facts
}

#[test]
fn a_sentence_for_people() {
    assert_eq!(NcclFacts::default().sentence(), None);
    assert_eq!(facts(&["NCCL version 2.27.3+cuda12.9"]).sentence().as_deref(), Some("NCCL 2.27.3"));
    let mut all = facts(&[
        "Bootstrap : Using eth0:10.0.0.1<0>",
        "NET/IB : No device found.",
        "NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.1.0.1<0>",
        "Using network Socket",
        "Channel 00/02 :    0   1   2   3",
        "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/Socket/0",
        "Channel 01/0 : 3[1] -> 0[0] [receive] via NET/Socket/1",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "Channel 01/1 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "Channel 01 : 0[0] -> 2[1] via SHM/direct/direct",
    ]);
    assert!(all.push("NCCL version 2.18.1+cuda12.1"));
    assert!(!all.push("NCCL version 2.18.1+cuda12.1"), "nothing new");
    assert!(!all.push("gpu-a:11:12 [0] NCCL INFO Connected all rings"));
    assert!(!all.push("step 1"));
    let begin =
        "NCCL 2.18.1: bootstrap eth0; 2 channels: 2 P2P/CUMEM, 1 SHM, 2 NET/Socket over eth0 and eth1";
    assert_eq!(all.sentence().as_deref(), Some(begin));
    for line in [
        "gpu-a:11:12 [0] NCCL INFO 4 coll channels, 4 p2p channels, 2 p2p channels per peer",
        "gpu-a:11:12 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId 30 - Init COMPLETE",
        "gpu-a:11:12 [0] NCCL INFO comm 0x2 rank 0 nranks 2 cudaDev 0 busId 30 - Init COMPLETE",
        "gpu-a:13:13 [1] transport.cc:7 NCCL WARN Cuda failure \u{1b}[31m'out of memory'",
        "gpu-a:13:13 [1] transport.cc:8 NCCL WARN and what follows of it",
    ] {
        assert!(all.push(line), "{line}");
    }
    let all = all.sentence().unwrap_or_default();
    assert_eq!(
        all,
        format!(
            "{}; 4 ranks; 2 communicators; 2 processes; warning: Cuda failure ␛[31m'out of memory' (and 1 more)",
            begin.replace("2 channels", "4 channels")
        )
    );
}

#[test]
fn devices_of_a_plugin_have_names() {
    let all = facts(&[
        "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "Using network IBext_v8",
        "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IBext_v8/1/GDRDMA",
    ]);
    assert_eq!(all.sentence().as_deref(), Some("NCCL: 1 channel: 1 NET/IBext_v8/GDRDMA over mlx5_1"));
    let all =
        facts(&["Using network AWS Libfabric", "Channel 70/0 : 3[1] -> 0[0] [send] via NET/AWS Libfabric/1"]);
    assert_eq!(all.sentence(), None, "a channel that NCCL can't have");
    assert_eq!(facts(&["Using network IB"]).sentence().as_deref(), Some("NCCL: network IB"));
}

#[test]
fn made_up_names_fill_no_memory() {
    let mut facts = NcclFacts::default();
    for number in 0..1000 {
        facts.push(&format!("vm:{number}:1 [0] NCCL INFO NET/n{number} : Using [{number}]x{number}:1"));
        facts.push(&format!("vm:1:1 [0] NCCL INFO Channel 0 : 0 -> 1 via NET/n{number}/{number}"));
    }
    assert_eq!((facts.devices.len(), facts.transports.len(), facts.processes.len()), (MOST, MOST, MOST));
    facts.push(&format!("vm:1:1 [0] x.cc:1 NCCL WARN {}", "é".repeat(10_000)));
    assert_eq!(facts.first_warning.map(|text| text.chars().count()), Some(WARNING));
}

proptest! {
    #[test]
    fn bytes_are_never_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        NcclFacts::default().push(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn what_is_almost_a_line_is_never_a_fault(
        head in "([a-z]{0,3}:[0-9]{0,12}:[0-9]{0,3} )?(\\[[0-9]\\] )?NCCL (INFO|WARN|version) ",
        text in "(Channel |CollNet |NET/|Bootstrap : Using|Using network |comm |[0-9]{0,12} coll channels)?[é0-9/\\[\\]:;<> a-zI.,]{0,30}( via [A-Z]{0,4}/?)?[A-Za-z0-9/()]{0,20}( - Init COMPLETE)?",
    ) {
        let mut facts = NcclFacts::default();
        facts.push(&format!("{head}{text}"));
        facts.sentence();
    }
}
