//! The source of a crate as a table of modules, and the resolution of paths in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use syn::{Attribute, Item, ItemMod, UseTree, Visibility};

/// Segments from the crate's name on: `["fairlock", "client", "Client"]`.
pub(crate) type Place = Vec<String>;

#[derive(Default)]
pub(crate) struct Module {
    pub(crate) public: bool,
    /// The features it needs.
    pub(crate) features: Vec<String>,
    /// All items except modules and imports.
    pub(crate) items: Vec<Item>,
    /// What `use` imports, by its local name.
    imports: BTreeMap<String, Place>,
    /// The `pub use` imports, each with its features.
    pub(crate) exports: Vec<(String, Vec<String>)>,
}

/// All modules of several crates.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) modules: BTreeMap<Place, Module>,
}

impl Source {
    /// Reads the crate whose sources are in `folder`.
    pub(crate) fn read_crate(&mut self, name: &str, folder: &Path) {
        let place = vec![name.to_owned()];
        self.read_file(place, &folder.join("lib.rs"), folder, true, Vec::new());
    }

    fn read_file(
        &mut self,
        place: Place,
        file: &Path,
        children: &Path,
        public: bool,
        features: Vec<String>,
    ) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.read_items(place, parsed.items, children, public, features);
    }

    fn read_items(
        &mut self,
        place: Place,
        items: Vec<Item>,
        children: &Path,
        public: bool,
        features: Vec<String>,
    ) {
        let mut module = Module { public, features, ..Module::default() };
        for item in items {
            match item {
                Item::Mod(child) if !is_test(&child.attrs) => {
                    self.read_module(&place, &module.features, child, children);
                }
                Item::Use(item) if !is_test(&item.attrs) => {
                    let public = matches!(item.vis, Visibility::Public(_));
                    let mut names = Vec::new();
                    flatten(&item.tree, &mut Vec::new(), &mut names);
                    for (name, path) in names {
                        if public {
                            module.exports.push((name.clone(), features_of(&item.attrs)));
                        }
                        module.imports.insert(name, path);
                    }
                }
                Item::Mod(_) | Item::Use(_) => {}
                item => module.items.push(item),
            }
        }
        self.modules.insert(place, module);
    }

    fn read_module(&mut self, parent: &Place, needed: &[String], item: ItemMod, folder: &Path) {
        let name = item.ident.to_string();
        let mut place = parent.clone();
        place.push(name.clone());
        let public = matches!(item.vis, Visibility::Public(_));
        let features = [needed, &features_of(&item.attrs)].concat();
        let below = folder.join(&name);
        match item.content {
            Some((_, items)) => self.read_items(place, items, &below, public, features),
            None => {
                let file = folder.join(format!("{name}.rs"));
                let file = if file.exists() { file } else { below.join("mod.rs") };
                self.read_file(place, &file, &below, public, features);
            }
        }
    }

    /// Resolves `path` in the module `at`. Types of other crates keep their full path; names of the
    /// language itself and generic parameters stay as they are.
    pub(crate) fn resolve(&self, at: &Place, path: &[String]) -> Place {
        let module = &self.modules[at];
        let first = &path[0];
        let defined = || module.items.iter().any(|item| name_of(item).as_ref() == Some(first));
        if module.imports.contains_key(first) || defined() {
            path.iter().fold(at.clone(), |place, name| self.step(&place, name))
        } else {
            self.resolve_import(at, path)
        }
    }

    /// Like [`resolve`](Self::resolve), but for a `use`, where the module's own names do not count.
    fn resolve_import(&self, at: &Place, path: &[String]) -> Place {
        let (first, rest) = (&path[0], &path[1..]);
        let start = match first.as_str() {
            "crate" => vec![at[0].clone()],
            "self" => at.clone(),
            "super" => at[..at.len() - 1].to_vec(),
            _ => {
                let child = [at.as_slice(), std::slice::from_ref(first)].concat();
                if self.modules.contains_key(&child) { child } else { vec![first.clone()] }
            }
        };
        rest.iter().fold(start, |place, name| match name.as_str() {
            "super" => place[..place.len() - 1].to_vec(),
            name => self.step(&place, name),
        })
    }

    fn step(&self, place: &Place, name: &str) -> Place {
        if let Some(path) = self.modules.get(place).and_then(|module| module.imports.get(name)) {
            return self.resolve_import(place, path);
        }
        let mut place = place.clone();
        place.push(name.to_owned());
        place
    }

    /// The item at `place`, if it is in one of these crates.
    pub(crate) fn item(&self, place: &Place) -> Option<&Item> {
        let (name, module) = place.split_last()?;
        let items = &self.modules.get(module)?.items;
        items.iter().find(|item| name_of(item).as_ref() == Some(name))
    }
}

fn flatten(tree: &UseTree, path: &mut Place, names: &mut Vec<(String, Place)>) {
    let with = |path: &Place, last: &syn::Ident| {
        // `use a::{self}` is `use a`.
        let last = (last != "self").then(|| last.to_string());
        path.iter().cloned().chain(last).collect::<Place>()
    };
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            flatten(&step.tree, path, names);
            path.pop();
        }
        UseTree::Name(name) => {
            let full = with(path, &name.ident);
            names.push((full.last().expect("a name").clone(), full));
        }
        UseTree::Rename(name) => names.push((name.rename.to_string(), with(path, &name.ident))),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, path, names));
        }
        UseTree::Glob(_) => {
            panic!("`use {}::*`: only tests may import what is not named", path.join("::"))
        }
    }
}

pub(crate) fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn condition(attribute: &Attribute) -> Option<String> {
    let is_cfg = attribute.path().is_ident("cfg");
    is_cfg.then(|| attribute.meta.require_list().expect("cfg(...)").tokens.to_string())
}

pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter_map(condition).any(|condition| condition == "test")
}

/// The required features, and other conditions as they are written.
pub(crate) fn features_of(attributes: &[Attribute]) -> Vec<String> {
    let conditions = attributes.iter().filter_map(condition);
    conditions
        .map(|text| match text.strip_prefix("feature = \"") {
            Some(rest) if rest.matches('"').count() == 1 => {
                format!("feature {}", &rest[..rest.len() - 1])
            }
            _ => text,
        })
        .collect()
}
