use super::*;
use crate::domain::hooks::StepsBy;
use crate::domain::sync::Code;
use crate::domain::time::Stamp;

const NOW: Stamp = Stamp(1_800_000_000_000_000);
const COMMIT: &str = "4f2a91c07d1e6b0c5a3f8e2d9b7c6a5f4e3d2c1b";

fn spec(name: &str, code: Option<Code>) -> RunSpec {
    let text = format!(
        r#"{{"id":"01M833ZBPRG911CJJWVKGZJ3C6","name":"{name}","kind":"plain","command":["python","train.py"],"env":{{}},
            "workdir":null,"placements":[],"created":{}}}"#,
        NOW.0 - 3_600_000_000
    );
    let mut spec: RunSpec = serde_json::from_str(&text).unwrap();
    spec.code = code;
    spec
}

fn trained(loss: Option<f32>, samples_per_s: Option<f32>) -> Trained {
    Trained {
        step: 1200,
        loss,
        samples_per_s,
        by: StepsBy::Program,
        libraries: String::new(),
        stands_since: None,
    }
}

fn passes(text: &str, spec: &RunSpec, trained: Option<&Trained>) -> bool {
    let run = ListedRun {
        spec,
        state: ListedState::Done,
        duration_us: Some(90_000_000),
        bytes: Some(1000),
        trained,
    };
    RunFilter::parse(text).unwrap().matches(&run, NOW)
}

#[test]
fn what_training_came_to_can_be_asked_for() {
    let (spec, good) = (spec("digits", None), trained(Some(0.25), Some(8734.0)));
    for yes in ["loss<0.3", "loss=0.25", "loss>0.2 rate>8000", "rate=8734", "step>1000 done", "!loss>1"] {
        assert!(passes(yes, &spec, Some(&good)), "{yes}");
    }
    for no in ["loss<0.25", "loss=0.26", "rate<8000", "step>1200"] {
        assert!(!passes(no, &spec, Some(&good)), "{no}");
    }
    // what is not known is no number
    for no in ["loss<1", "loss>0", "rate>0", "step>0"] {
        assert!(!passes(no, &spec, None), "{no}");
        assert!(no.starts_with("step") || !passes(no, &spec, Some(&trained(None, None))), "{no}");
    }
}

#[test]
fn code_is_asked_for_by_the_beginning_of_its_commit() {
    let code = |dirty: bool| {
        Some(Code { commit: Some(COMMIT.into()), dirty: dirty.then(|| "ab".into()), ..Code::default() })
    };
    let (clean, changed, unknown) = (spec("a", code(false)), spec("a", code(true)), spec("a", None));
    let which = |text: &str| [&clean, &changed, &unknown].map(|spec| passes(text, spec, None));
    assert_eq!(which("git~4f2a"), [true, true, false]);
    assert_eq!(which("commit=4F2A91C"), [true, true, false]);
    assert_eq!(which("git~2a91"), [false, false, false], "only from its beginning");
    assert_eq!(which("git~changed"), [false, true, false]);
    assert_eq!(which("git~4f !git~changed"), [true, false, false]);
    let on = |branch: &str| Some(Code { branch: Some(branch.into()), ..code(false).unwrap() });
    let (main, fix) = (spec("a", on("main")), spec("a", on("Fix/loader")));
    let on_which = |text: &str| [&main, &fix, &clean].map(|spec| passes(text, spec, None));
    assert_eq!(on_which("git~main"), [true, false, false]);
    assert_eq!(on_which("git~fix/"), [false, true, false]);
    assert_eq!(on_which("git~loader"), [false, false, false], "only from its beginning");
    assert!(RunFilter::parse("git<4").unwrap_err().to_string().contains("git~part"));
    assert!(RunFilter::parse("loss<low").unwrap_err().to_string().contains("loss<0.5"));
}

#[test]
fn what_is_not_known_comes_last_in_every_order() {
    let (spec, good, better, none) = (
        spec("a", None),
        trained(Some(0.5), Some(100.0)),
        trained(Some(0.1), Some(50.0)),
        trained(None, None),
    );
    let sorted = |order: RunOrder| {
        let mut runs = [(0, Some(&none)), (1, None), (2, Some(&good)), (3, Some(&better))];
        order.sort(&mut runs, |(_, trained)| ListedRun {
            spec: &spec,
            state: ListedState::Done,
            duration_us: None,
            bytes: None,
            trained: *trained,
        });
        runs.map(|(number, _)| number)
    };
    assert_eq!(sorted(RunOrder::Loss), [3, 2, 0, 1]);
    assert_eq!(sorted(RunOrder::Fastest), [2, 3, 0, 1]);
    for order in RunOrder::ALL {
        assert_eq!(RunOrder::named(order.name()), Some(order));
    }
}

#[test]
fn runs_of_one_commit_stand_together_and_unknown_code_comes_last() {
    let of = |name: &str, commit: Option<&str>, minutes: i64| {
        let code = commit.map(|commit| Code { commit: Some(commit.into()), ..Code::default() });
        RunSpec { created: Stamp(minutes * 60_000_000), ..spec(name, code) }
    };
    let mut runs = [
        of("old a", Some("aaaa"), 1),
        of("none", None, 9),
        of("b", Some("bbbb"), 3),
        of("new a", Some("aaaa"), 5),
        of("c", Some("cccc"), 2),
    ];
    RunOrder::Git.sort(&mut runs, |spec| ListedRun {
        spec,
        state: ListedState::Done,
        duration_us: None,
        bytes: None,
        trained: None,
    });
    let names: Vec<&str> = runs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["new a", "old a", "b", "c", "none"]);
    assert_eq!(RunOrder::named("git"), Some(RunOrder::Git));
}

#[test]
fn of_one_commit_what_was_not_changed_stands_first_and_each_change_together() {
    let of = |name: &str, dirty: Option<&str>, unclear: bool, minutes: i64| {
        let commit = Some(COMMIT.to_owned());
        let code = Code { commit, dirty: dirty.map(str::to_owned), unclear, ..Code::default() };
        RunSpec { created: Stamp(minutes * 60_000_000), ..spec(name, Some(code)) }
    };
    let mut runs = [
        of("unclear", None, true, 9),
        of("old change", Some("aa"), false, 1),
        of("other change", Some("bb"), false, 5),
        of("old", None, false, 2),
        of("change", Some("aa"), false, 7),
        of("new", None, false, 3),
    ];
    RunOrder::Git.sort(&mut runs, |spec| ListedRun {
        spec,
        state: ListedState::Done,
        duration_us: None,
        bytes: None,
        trained: None,
    });
    let names: Vec<&str> = runs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["new", "old", "change", "old change", "other change", "unclear"]);
}
