//! What ranks find around them, as four fields say it: what is activated, the folder that is copied, the image and the volumes of
//! containers. From their texts to a request's options and back. Must not know keys.

use crate::domain::container::ContainerOptions;
use crate::domain::environment::EnvironmentPlan;
use crate::domain::options::RunOptions;
use crate::domain::sync::SyncPlan;
use crate::launch::container::WrittenContainer;
use crate::launch::{fields, folder};
use crate::tui::screens::Here;
use crate::tui::screens::launch::{Fault, Field, LaunchForm};

/// What the fields say.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    environment: EnvironmentPlan,
    pub(super) sync: Option<SyncPlan>,
    pub(super) image: Option<String>,
    pub(super) volumes: Vec<String>,
}

impl Surroundings {
    /// Reads the fields; what can't be read goes to `faults`. The image and the volumes are read with the rest of the request.
    pub(super) fn of(form: &LaunchForm, here: &Here, faults: &mut Vec<Fault>) -> Self {
        let mut said = Self::default();
        match fields::activated(form.text(Field::Activate)) {
            Ok(plan) => said.environment = plan,
            Err(text) => faults.push(Fault::new(Field::Activate, text)),
        }
        match fields::volumes(form.text(Field::Volumes)) {
            Ok(list) => said.volumes = list,
            Err(caret) => faults.push(Fault::new(Field::Volumes, caret.text)),
        }
        said.image = crate::tui::screens::launch::reading::optional(form, Field::Image);
        if let Some(text) = crate::tui::screens::launch::reading::optional(form, Field::Sync) {
            match folder::folder(&text, false, &here.cwd, &here.home) {
                Ok(plan) => said.sync = Some(with_kept(plan, form.options.sync.as_ref())),
                Err(fault) => faults.push(Fault::new(Field::Sync, format!("`{text}`: {fault}"))),
            }
        }
        said
    }

    /// The options of a command, with what the form keeps beside the fields.
    pub(super) fn options(&self, form: &LaunchForm) -> RunOptions {
        RunOptions {
            environment: self.environment.over(&form.options.environment),
            sync: None,
            container: form.options.container.clone().filter(|_| self.image.is_some()),
            ..form.options.clone()
        }
    }

    /// Lays the fields, and what the form keeps beside them, over what a launcher's line says.
    pub(super) fn lay_over(&self, form: &LaunchForm, options: &mut RunOptions) {
        let kept = self.environment.over(&form.options.environment);
        options.environment = kept.over(&options.environment);
        if let Some(container) = options.container.as_mut().filter(|_| !self.volumes.is_empty()) {
            container.volumes.clear();
        }
    }

    /// The image and the volumes, as they are written.
    pub(super) fn container(&self) -> WrittenContainer<'_> {
        WrittenContainer { image: self.image.as_deref(), volumes: &self.volumes, arguments: &[] }
    }
}

/// What is activated on a host is not in its containers: told where it is written.
pub(super) fn hides(options: &RunOptions) -> Option<Fault> {
    let asked = options.environment.clone().decided();
    if options.container.is_none() || !asked.activates() {
        return None;
    }
    let login = EnvironmentPlan { login: None, ..asked };
    Some(if login.activates() {
        Fault::new(
            Field::Activate,
            "ranks in containers see only their image, not what is activated on the host: empty this field or image",
        )
    } else {
        Fault::new(
            Field::Image,
            "ranks in containers see only their image, and this recipe or run takes the login shell's environment of the \
             host: empty this field, or launch without that recipe",
        )
    })
}

/// A plan with `--sync-delete`, where that is the word for this very folder.
fn with_kept(plan: SyncPlan, kept: Option<&SyncPlan>) -> SyncPlan {
    let is_it = kept.is_some_and(|kept| (&kept.dir, &kept.remote) == (&plan.dir, &plan.remote));
    SyncPlan { delete: is_it && kept.is_some_and(|kept| kept.delete), ..plan }
}

/// Fills the fields; gives the options without what these say.
pub(super) fn fill(form: &mut LaunchForm, options: &RunOptions, home: &str) -> RunOptions {
    for field in [Field::Activate, Field::Sync, Field::Image, Field::Volumes] {
        form.set(field, &text(options, field, home).unwrap_or_default());
    }
    let bare = |container: &ContainerOptions| ContainerOptions {
        image: String::new(),
        volumes: Vec::new(),
        ..container.clone()
    };
    RunOptions {
        environment: EnvironmentPlan {
            login: options.environment.login,
            limits: options.environment.limits.clone(),
            ..EnvironmentPlan::default()
        },
        container: options.container.as_ref().map(bare),
        ..options.clone()
    }
}

/// What options say, as one of the fields writes it.
pub(super) fn text(options: &RunOptions, field: Field, home: &str) -> Option<String> {
    let container = options.container.as_ref();
    let text = match field {
        Field::Activate => fields::activated_text(&options.environment),
        Field::Sync => options.sync.as_ref().map(|plan| folder::folder_text(plan, home))?,
        Field::Image => container?.image.clone(),
        Field::Volumes => fields::volumes_text(&container?.volumes),
        _ => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::environment::{Bound, Limit, LoginShell};
    use crate::domain::world::World;
    use crate::launch::request::LaunchRequest;
    use crate::tui::screens::launch::reading::{Outcome, read};

    fn here() -> Here {
        Here { cwd: "/home/li/mnist".to_owned(), home: "/home/li".to_owned(), ..Here::default() }
    }

    fn form(texts: &[(Field, &str)]) -> LaunchForm {
        let mut form = LaunchForm::default();
        form.set(Field::Command, "python train.py");
        for (field, text) in texts {
            form.set(*field, text);
        }
        form
    }

    fn request(form: &LaunchForm) -> Result<LaunchRequest, Vec<(Field, String)>> {
        match read(form, &BTreeMap::new(), &World::default(), &here()).outcome {
            Outcome::Request(request) => Ok(*request),
            Outcome::Faults(faults) => {
                Err(faults.into_iter().map(|fault| (fault.field, fault.text)).collect())
            }
            Outcome::NeedsFile(name) => panic!("{name}"),
        }
    }

    #[test]
    fn what_is_written_is_asked_for() {
        let asked = request(&form(&[(Field::Activate, "module cuda/12.4,nccl, venv ~/v")])).unwrap();
        let environment = &asked.options.environment;
        assert_eq!((environment.modules.len(), environment.venv.as_deref()), (2, Some("~/v")));
        let asked = request(&form(&[
            (Field::Sync, "."),
            (Field::Image, " horovod/horovod:0.28.1 "),
            (Field::Volumes, "/data:/data:ro,z ~/c:/c"),
        ]))
        .unwrap();
        let sync = asked.options.sync.unwrap();
        assert_eq!((sync.dir.as_str(), sync.remote.as_str()), ("/home/li/mnist", "~/mnist"));
        assert_eq!(asked.workdir.as_deref(), Some("~/mnist"), "ranks start in the folder");
        let container = asked.options.container.unwrap();
        assert_eq!((container.image.as_str(), container.volumes.len()), ("horovod/horovod:0.28.1", 2));
    }

    #[test]
    fn each_fault_stands_at_its_field() {
        let faults = request(&form(&[
            (Field::Activate, "train"),
            (Field::Sync, ".:out"),
            (Field::Image, "a b"),
            (Field::Volumes, "./x:/x"),
        ]))
        .unwrap_err();
        let said = |field| {
            let fault = faults.iter().find(|(at, _)| *at == field);
            fault.map_or("", |(_, text)| text.as_str())
        };
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(said(Field::Activate).contains("write conda train, venv train"), "{faults:?}");
        assert!(said(Field::Sync).starts_with("`.:out`: the folder on the hosts must be"), "{faults:?}");
        assert!(said(Field::Image).contains("write one such as"), "{faults:?}");
        assert!(said(Field::Volumes).starts_with("`./x:/x` begins with a relative path"), "{faults:?}");
        let alone = request(&form(&[(Field::Volumes, "/x:/x")])).unwrap_err();
        assert_eq!(alone.len(), 1);
        assert!(alone[0].1.contains("field image"), "{alone:?}");
    }

    #[test]
    fn an_image_and_what_is_activated_exclude_each_other_in_the_words_of_the_form() {
        let both = [(Field::Activate, "conda train"), (Field::Image, "img:1")];
        let faults = request(&form(&both)).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].0, Field::Activate);
        assert!(
            faults[0].1.contains("empty this field or image") && !faults[0].1.contains("--"),
            "{faults:?}"
        );
        let none = [(Field::Activate, "conda none, venv none"), (Field::Image, "img:1")];
        assert!(request(&form(&none)).is_ok(), "switched off is not activated");
        let more = [both[0], both[1], (Field::Ranks, "x")];
        let fields: Vec<Field> = request(&form(&more)).unwrap_err().iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, [Field::Ranks, Field::Activate], "all faults are told");
        let mut recipe = form(&[(Field::Image, "img:1")]);
        recipe.options.environment.login = Some(LoginShell::Login);
        let faults = request(&recipe).unwrap_err();
        assert_eq!(faults[0].0, Field::Image, "{faults:?}");
    }

    #[test]
    fn what_fills_the_form_is_asked_for_again_and_can_be_cleared() {
        let options = RunOptions {
            container: Some(ContainerOptions {
                volumes: vec!["/my data:/data:ro,z".parse().unwrap()],
                user: Some("1000".to_owned()),
                arguments: vec!["--memory=4g".to_owned()],
                ..ContainerOptions::of("img:1")
            }),
            sync: Some(SyncPlan {
                dir: "/home/li/code".to_owned(),
                remote: "~/code".to_owned(),
                delete: true,
            }),
            environment: EnvironmentPlan {
                limits: BTreeMap::from([(Limit::Core, Bound::At(0))]),
                ..EnvironmentPlan::default()
            },
            ..RunOptions::default()
        };
        let mut form = form(&[]);
        form.options = fill(&mut form, &options, "/home/li");
        assert_eq!(form.text(Field::Sync), "~/code");
        assert_eq!(form.text(Field::Volumes), "'/my data:/data:ro,z'");
        assert_eq!(request(&form).unwrap().options, options);

        form.set(Field::Volumes, "");
        form.set(Field::Sync, "~/code:~/other");
        let changed = request(&form).unwrap().options;
        let container = changed.container.unwrap();
        assert!(container.volumes.is_empty() && container.arguments == ["--memory=4g"]);
        assert!(changed.sync.is_some_and(|sync| !sync.delete), "of another folder nothing is deleted");

        for field in [Field::Sync, Field::Image] {
            form.set(field, "");
        }
        let cleared = request(&form).unwrap();
        assert_eq!((cleared.options.container, cleared.options.sync, cleared.workdir), (None, None, None));
        let options = RunOptions {
            environment: EnvironmentPlan {
                login: Some(LoginShell::Login),
                conda: Some("train".to_owned()),
                ..options.environment
            },
            ..RunOptions::default()
        };
        form.options = fill(&mut form, &options, "/home/li");
        assert_eq!(form.text(Field::Activate), "conda train");
        assert_eq!(request(&form).unwrap().options, options);
        form.set(Field::Activate, "");
        let kept = request(&form).unwrap().options.environment;
        assert_eq!((kept.conda, kept.login, kept.limits.len()), (None, Some(LoginShell::Login), 1));
    }

    #[test]
    fn fields_count_before_a_pasted_line() {
        let mut form = form(&[]);
        form.set(
            Field::Command,
            "docker run --gpus all --memory 4g -v /a:/a -v /b:/b img:1 horovodrun -np 2 python t.py",
        );
        let reading = read(&form, &BTreeMap::new(), &World::default(), &here());
        form.line = reading.line;
        assert_eq!(form.when_empty(Field::Image), "img:1 · from the line");
        assert_eq!(form.when_empty(Field::Volumes), "/a:/a /b:/b · from the line");
        form.set(Field::Image, "img:2");
        form.set(Field::Volumes, "/c:/c");
        form.set(Field::Sync, "/srv/code");
        let asked = request(&form).unwrap();
        let container = asked.options.container.unwrap();
        assert_eq!((container.image.as_str(), container.arguments.len()), ("img:2", 1));
        let volumes: Vec<String> = container.volumes.iter().map(ToString::to_string).collect();
        assert_eq!(volumes, ["/c:/c"], "the field says all of them");
        form.set(Field::Command, "horovodrun -np 2 python t.py");
        form.set(Field::Image, "");
        form.set(Field::Volumes, "");
        form.options.environment.limits = BTreeMap::from([(Limit::Core, Bound::At(0))]);
        let limits = request(&form).unwrap().options.environment.limits;
        assert_eq!(limits.len(), 1, "what a recipe says beside its line is kept");
        assert_eq!(asked.workdir.as_deref(), Some("/srv/code"));
    }
}
