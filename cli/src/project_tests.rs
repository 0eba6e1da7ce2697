#![allow(clippy::unwrap_used)]

use super::*;

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Home {
            folder: tempfile::tempdir().unwrap(),
        }
    }
    fn make(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(&path).unwrap();
        fs::canonicalize(path).unwrap()
    }
    fn find(&self, path: &Path) -> Result<Project, Error> {
        Project::find(path, Some(self.folder.path()))
    }
    fn states(&self) -> StateHome {
        StateHome {
            folder: self.folder.path().join("state/mooring"),
            runtime: None,
        }
    }
}

#[test]
fn the_project_is_the_repository_around_the_folder_or_the_folder() {
    let home = Home::new();
    home.make("repo/.git");
    let deep = home.make("repo/src/deep");
    let plain = home.make("plain/folder");
    home.make(".git"); // settings kept in git do not make home a project
    let found = home.find(&deep).unwrap();
    assert_eq!((found.root, found.git), (home.make("repo"), true));
    let found = home.find(&plain).unwrap();
    assert_eq!((found.root.clone(), found.git), (plain, false));
}

#[test]
fn home_and_the_root_folder_are_no_projects() {
    let home = Home::new();
    for path in [home.folder.path(), Path::new("/")] {
        let error = home.find(path).unwrap_err().to_string();
        assert!(error.contains("is no project folder"), "{error}");
    }
}

#[test]
fn a_state_folder_is_private_and_named_after_project_and_path() {
    let home = Home::new();
    let project = home.find(&home.make("a b")).unwrap();
    let state = home.states().open(&project).unwrap();
    assert_eq!(
        state.folder.file_name().unwrap().to_str().unwrap(),
        format!("a_b-{}", project.key())
    );
    assert_eq!(fs::metadata(&state.folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(state.socket, state.folder.join("harness.sock"));
}

#[test]
fn a_long_state_path_puts_the_sockets_into_a_short_private_folder() {
    let home = Home::new();
    let project = home.find(&home.make("p")).unwrap();
    let deep = home.make(&format!("state/{}", "x".repeat(100)));
    let runtime = home.make("run");
    for (runtime, parent) in [
        (Some(runtime.clone()), runtime.join("mooring")),
        (
            None,
            PathBuf::from(format!(
                "/tmp/mooring-{}",
                rustix::process::getuid().as_raw()
            )),
        ),
    ] {
        let state = StateHome {
            folder: deep.join("mooring"),
            runtime,
        }
        .open(&project)
        .unwrap();
        assert_eq!(
            state.socket,
            parent.join(project.key()).join("harness.sock")
        );
        assert!(state.sandbox_socket.as_os_str().len() < SOCKET_PATH_MAX);
        assert_eq!(fs::metadata(&parent).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(parent.join(project.key())).unwrap();
    }
}

#[test]
fn a_folder_that_is_a_link_is_refused_and_an_open_one_is_closed() {
    let home = Home::new();
    let target = home.make("elsewhere");
    let link = home.folder.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(
        private_folder(link)
            .unwrap_err()
            .to_string()
            .contains("is no folder")
    );

    fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
    let closed = private_folder(target).unwrap();
    assert_eq!(fs::metadata(closed).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_moved_project_is_offered_for_adoption_and_keeps_its_state() {
    let home = Home::new();
    let old = home.make("old");
    let states = home.states();
    let state = states.open(&home.find(&old).unwrap()).unwrap();
    fs::write(state.folder.join("mooring.db"), "kept").unwrap();

    let new = home.folder.path().join("new");
    fs::rename(&old, &new).unwrap();
    let project = home.find(&new).unwrap();
    let Found::Moved(moved) = states.find(&project).unwrap() else {
        panic!("the moved project was not recognised")
    };
    assert_eq!(moved.old, old);
    let adopted = states.adopt(&project, &moved).unwrap();
    assert_eq!(
        fs::read_to_string(adopted.folder.join("mooring.db")).unwrap(),
        "kept"
    );
    assert!(!state.folder.exists());
    // From now on it is this path's.
    assert!(matches!(states.find(&project).unwrap(), Found::State(_)));
}

#[test]
fn a_copy_or_another_folder_is_not_taken_for_a_moved_project() {
    let home = Home::new();
    let old = home.make("old");
    let states = home.states();
    states.open(&home.find(&old).unwrap()).unwrap();
    // A copy beside it: another inode.
    let copy = home.find(&home.make("copy")).unwrap();
    assert!(matches!(states.find(&copy).unwrap(), Found::State(_)));
    // The same inode number, given to a folder that was made later.
    let mut later = home.find(&home.make("later")).unwrap();
    fs::remove_dir(&old).unwrap();
    let stored: Identity =
        serde_json::from_slice(&fs::read(states.state_folder(&old).join("project.json")).unwrap())
            .unwrap();
    later.id.inode = stored.inode;
    later.id.born_ns = stored.born_ns + 1;
    assert!(matches!(states.find(&later).unwrap(), Found::State(_)));
}
