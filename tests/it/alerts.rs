//! What the cluster tells by itself, on the screens: the Events screen, the panes beside other screens, notices, and what
//! keys do there.

use std::sync::Arc;

use hvtui::domain::alerts::{AlertKind, AlertRules};
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::gpu::Reading;
use hvtui::domain::gpu::event::{GpuEvent, Happening};
use hvtui::domain::host::LinkState;
use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::lease::{Lease, Leases};
use hvtui::domain::recording_cost::RecordingCost;
use hvtui::domain::run::RunStage;
use hvtui::domain::run_status::{HostRunStatus, RunInventory};
use hvtui::domain::standstill::StalledPhase;
use hvtui::domain::timing::Phase;
use hvtui::tui::core::{Effect, KeyCode, Level, Msg, Screen};
use hvtui::tui::screens::cluster::rows::RowId;
use hvtui::tui::screens::events::{EventRow, rows};

use crate::common::world::{
    FREE, Gpu, Story, cluster, failed, key, press, recordings, run_id, training, uuid,
};
use crate::screens::{COLOR, shoot, text};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

#[test]
fn what_recording_costs_is_said_while_a_run_is_recorded() {
    let mut story = training();
    press(&mut story, "E");
    let second_line = |story: &Story| text(&story.model, COLOR).lines().nth(1).unwrap().to_owned();
    assert!(!second_line(&story).contains("recording"), "nothing is told yet");
    let cost = RecordingCost {
        recordings: 1,
        cores: 0.0012,
        bytes_per_s: 8_300.0,
        dropped: 0,
        waiting: 0,
        is_full: false,
    };
    story.send(Msg::RecordingCosts(Some(cost)));
    let words = "recording: 0.1 % of a core, 8.1 K/s, nothing lost";
    for size in [(80, 24), (200, 50)] {
        story.send(Msg::Resize(size.0, size.1));
        assert!(second_line(&story).trim_end().ends_with(words), "{}", second_line(&story));
    }
    story.send(Msg::RecordingCosts(None));
    assert!(!second_line(&story).contains("recording"));
}

/// Both hosts of [`hanging`] tell what their GPUs do.
fn sampled(story: &mut Story) {
    let held = Gpu { util: 0, mem: 96, user: Some(("wang", "python -m ipykernel_launcher")), throttle: &[] };
    let spins = Gpu { util: 100, mem: 11, user: Some(("li", "hvtui train mnist")), throttle: &[] };
    story.sample("gpu-a", 40.0, &[held, FREE, spins, spins]);
    story.sample("gpu-b", 38.0, &[spins, Gpu { util: 5, ..spins }, FREE, FREE]);
}

/// The run of four ranks, in which rank 3 has come to stand for a minute; one GPU is held and idle, one host is lost.
fn hanging() -> Story {
    let mut story = training();
    let rules = AlertRules { held_idle_us: Some(30_000_000), ..AlertRules::default() };
    story.model.world.alerts.rules = Arc::new(rules);
    for rank in 0..4 {
        let phase = if rank == 3 { Phase::Data } else { Phase::Wait };
        let standing = StalledPhase { phase, step: 121, for_us: 1_000_000, stopped: false, at: None };
        story.rank(rank, Event::RankStands { standing });
    }
    for second in 0..75 {
        story.wait_ms(1000);
        sampled(&mut story);
        if second == 20 {
            story.gpu_host("gpu-c", 2).down("gpu-c", "connect to 10.0.0.13:22: connection refused");
        }
    }
    story
}

fn kinds(story: &Story) -> Vec<AlertKind> {
    story.model.world.alerts.active().map(|alert| alert.kind).collect()
}

#[test]
fn events_at_all_sizes() {
    let mut story = hanging();
    assert_eq!(
        kinds(&story),
        [AlertKind::Straggler, AlertKind::HeldIdle, AlertKind::Hang, AlertKind::HostDown]
    );
    story.model.notice(Level::Warning, "hosts by least busy");
    story.wait_ms(10_000);
    press(&mut story, "E");
    shoot("events", story, &[SIZES[0], SIZES[1], SIZES[2], (400, 100)], COLOR);
    let mut nothing = Story::new(&["gpu-a"]);
    press(&mut nothing, "E");
    shoot("events-none", nothing, &[(80, 24)], COLOR);
}

#[test]
fn wide_screens_have_a_pane_of_events() {
    let mut story = hanging();
    story.wait_ms(10_000);
    sampled(&mut story);
    shoot("run-events", story, &SIZES, COLOR);
    let mut story = hanging();
    press(&mut story, "c");
    story.wait_ms(10_000);
    shoot("cluster-events", story, &SIZES, COLOR);
}

#[test]
fn notices_have_a_line_of_their_own_and_cover_nothing() {
    let mut story = cluster();
    story.send(Msg::Resize(80, 24));
    let without = text(&story.model, COLOR);
    story.send(Msg::Notice(Level::Info, "the first".to_owned()));
    story.send(Msg::Notice(Level::Error, "launch: gpu-a is busy".to_owned()));
    let with = text(&story.model, COLOR);
    let (without, with): (Vec<&str>, Vec<&str>) = (without.lines().collect(), with.lines().collect());
    assert_eq!(with[22], " ✖ launch: gpu-a is busy  +1 more (E)");
    assert_eq!(with[23], without[23], "the footer stays");
    assert_eq!(with[..21], without[..21], "and what is above");
    press(&mut story, "G");
    let last = text(&story.model, COLOR).lines().nth(21).unwrap().to_owned();
    assert!(
        last.contains("gpu-d") || last.contains("refused") || last.contains("hvtui hosts trust"),
        "{last}"
    );
    story.wait_ms(9_000);
    press(&mut story, "E");
    let events = text(&story.model, COLOR);
    assert!(events.contains("the first") && events.contains("launch: gpu-a is busy"), "{events}");
    let long = "word ".repeat(60);
    story.send(Msg::Notice(Level::Error, long));
    let screen = text(&story.model, COLOR);
    assert_eq!(screen.lines().filter(|line| line.contains("word word")).count(), 3 + 1, "{screen}");
}

#[test]
fn enter_goes_to_what_an_event_is_about_and_esc_back() {
    let mut story = hanging();
    press(&mut story, "cE");
    let of = |story: &Story, at: usize| match rows(&story.model)[at] {
        EventRow::Alert(alert) => alert.kind,
        EventRow::Notice(_) => panic!("an alert was expected"),
    };
    let places: Vec<AlertKind> = (0..4).map(|at| of(&story, at)).collect();
    let at = |kind: AlertKind| places.iter().position(|one| *one == kind).unwrap();
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.screen, Screen::Cluster);
    for (kind, screen) in [
        (AlertKind::HeldIdle, Screen::Detail),
        (AlertKind::HostDown, Screen::Detail),
        (AlertKind::Hang, Screen::Run),
    ] {
        press(&mut story, "cE");
        for _ in 0..at(kind) {
            press(&mut story, "j");
        }
        assert!(key(&mut story, KeyCode::Enter).is_empty());
        assert_eq!(story.model.ui.screen, screen, "{kind:?}");
        let detail = story.model.ui.detail.on.clone();
        match kind {
            AlertKind::HeldIdle => {
                assert_eq!(detail, Some(RowId::Gpu("gpu-a".into(), uuid("gpu-a", 0), 0)));
            }
            AlertKind::HostDown => assert_eq!(detail, Some(RowId::Host("gpu-c".into()))),
            _ => assert_eq!(story.model.ui.run.run, Some(run_id())),
        }
    }
    press(&mut story, "E");
    press(&mut story, "E");
    assert_eq!(story.model.ui.screen, Screen::Run, "the same key closes it");
}

#[test]
fn the_cursor_stays_on_its_event_when_others_come() {
    let mut story = hanging();
    press(&mut story, "cEj");
    let on = story.model.ui.events.cursor.on;
    story.link("gpu-b", LinkState::Down { reason: "gone".to_owned(), retry_at: None });
    story.wait_ms(31_000);
    assert_eq!(kinds(&story).iter().filter(|kind| **kind == AlertKind::HostDown).count(), 2);
    assert_eq!(story.model.ui.events.cursor.on, on);
    assert_eq!(story.model.ui.events.cursor.index, 2, "one line lower");
}

#[test]
fn each_begin_and_end_is_given_to_the_command_and_a_notice_says_what_no_row_shows() {
    for (screen, toasts) in [
        (Screen::Cluster, vec![]),
        (Screen::Runs, vec!["gpu-a:0 2 memory errors that ECC could not correct"]),
    ] {
        let mut story = Story::new(&["gpu-a"]);
        story.gpu_host("gpu-a", 1).sample("gpu-a", 1.0, &[FREE]);
        story.model.ui.screen = screen;
        let sampled = story.told.last().unwrap().clone();
        let errors = |story: &mut Story, seconds: i64, count: u64| {
            let mut envelope = sampled.clone();
            envelope.at = envelope.at.plus_micros(seconds * 1_000_000);
            if let Event::HostSampled { sample } = &mut envelope.event {
                Arc::make_mut(sample).gpus[0].ecc_uncorrected = Reading::Value(count);
            }
            story.send(Msg::Event(envelope))
        };
        let told = |effects: Vec<Effect>| match effects.as_slice() {
            [] => None,
            [Effect::Alert(news, _)] => Some((news.alert.kind, news.ended)),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(errors(&mut story, 1, 0)), None);
        assert_eq!(told(errors(&mut story, 2, 2)), Some((AlertKind::Ecc, false)));
        assert_eq!(told(errors(&mut story, 3, 2)), None);
        let shown: Vec<&str> = story.model.ui.toasts.iter().map(|toast| toast.text.as_str()).collect();
        assert_eq!(shown, toasts, "{screen:?}");
        assert_eq!(told(errors(&mut story, 4, 0)), None);
        assert_eq!(told(errors(&mut story, 14, 0)), Some((AlertKind::Ecc, true)));
    }
}

#[test]
fn a_notice_goes_once_the_screen_shows_its_alert() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 1).sample("gpu-a", 1.0, &[FREE]);
    story.model.ui.screen = Screen::Runs;
    let mut envelope = story.told.last().unwrap().clone();
    envelope.at = envelope.at.plus_micros(1_000_000);
    if let Event::HostSampled { sample } = &mut envelope.event {
        Arc::make_mut(sample).gpus[0].ecc_uncorrected = Reading::Value(2);
    }
    story.send(Msg::Event(envelope));
    assert_eq!(story.model.ui.toasts.len(), 1);
    key(&mut story, KeyCode::Char('?'));
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.toasts.len(), 1);
    key(&mut story, KeyCode::Char('1'));
    assert_eq!((story.model.ui.screen, story.model.ui.toasts.len()), (Screen::Cluster, 0));
}

#[test]
fn a_live_run_that_is_not_opened_here_is_announced_once() {
    let announced = |story: &Story| {
        let live = |text: &str| text.contains("is live on");
        let toasts = story.model.ui.toasts.iter().filter(|toast| live(&toast.text));
        toasts.map(|toast| toast.text.clone()).collect::<Vec<_>>()
    };
    let mut story = cluster();
    let run = RunId::new(1_795_000_000_000, 7);
    let lease = Lease {
        gpu: uuid("gpu-a", 2),
        user: Some("li".to_owned()),
        own: true,
        pid: Some(7),
        command: None,
        run: Some(run.clone()),
        name: Some("mnist".to_owned()),
        rank: Some(Rank(0)),
        since: None,
    };
    let leases = Leases { held: vec![lease], ..Leases::default() };
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::LeasesTold { leases: leases.clone() });
    let expected = format!("run {} mnist of li is live on gpu-a: r opens Runs", run.short());
    assert_eq!(announced(&story), std::slice::from_ref(&expected));
    story.wait_ms(9_000);
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::LeasesTold { leases: leases.clone() });
    assert_eq!(announced(&story), [""; 0], "once");

    // the list of runs shows it, where it has it
    let mut story = cluster();
    press(&mut story, "r");
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::LeasesTold { leases: leases.clone() });
    let words = format!("run {} mnist of li is live on gpu-a", run.short());
    assert_eq!(announced(&story), [words]);
    let mut story = cluster();
    press(&mut story, "r");
    let mut listed = recordings().swap_remove(0);
    (listed.spec.id, listed.outcome) = (run.clone(), None);
    story.send(Msg::RunsListed(vec![listed]));
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::LeasesTold { leases });
    assert_eq!(announced(&story), [""; 0]);

    // one on CPUs has no lease: its hosts tell of it when they are asked
    let mut story = cluster();
    let share = HostRunStatus {
        run: run.clone(),
        host: "gpu-a".into(),
        name: "mnist".to_owned(),
        ranks: vec![Rank(0)],
        stage: RunStage::Training,
        supervised: true,
        live: true,
        stop: None,
        started: Vec::new(),
        exits: [].into(),
        spec: None,
        quiet_s: None,
    };
    let mut inventory = RunInventory::default();
    inventory.take(&"gpu-a".into(), vec![share], true);
    for _ in 0..2 {
        story.send(Msg::RunsHeard(Box::new(inventory.clone())));
    }
    assert_eq!(announced(&story), [expected]);
    press(&mut story, "E");
    let effects = key(&mut story, KeyCode::Enter);
    assert_eq!((story.model.ui.screen, effects), (Screen::Runs, vec![Effect::ListRuns]));

    // the run that is shown here is none
    let story = training();
    assert_eq!(announced(&story), [""; 0]);
}

#[test]
fn a_rank_that_fails_is_an_event() {
    let mut story = failed();
    press(&mut story, "E");
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("failed first: killed by SIGKILL"), "{screen}");
}

#[test]
fn a_failure_is_one_event_and_its_rank_is_told_at_80_columns() {
    let mut story = failed();
    press(&mut story, "E");
    for size in SIZES {
        story.send(Msg::Resize(size.0, size.1));
        let screen = text(&story.model, COLOR);
        let told: Vec<&str> = screen.lines().filter(|line| line.contains("SIGKILL")).collect();
        assert_eq!(told.len(), 1, "{screen}");
        assert!(told[0].contains("rank 3"), "{screen}");
    }
    let mut story = cluster();
    let what = Happening::Xid { xid: 48 };
    let event = GpuEvent { index: 2, uuid: uuid("gpu-a", 2), what, count: 1, t: None };
    story.tell(Origin::Host(HostId::from("gpu-a")), Event::GpuHappened { event });
    press(&mut story, "E");
    let screen = text(&story.model, COLOR);
    let is_told = |line: &&str| line.contains("xid 48") && !line.contains('✖');
    assert_eq!(screen.lines().filter(is_told).count(), 1, "the notice apart:\n{screen}");
}
