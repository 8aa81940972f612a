//! Public items as lines of text.

use super::source::{Place, Source, features_of, is_test, name_of};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Meta, Token, TraitItem, Visibility};

/// What users of the library can name, and what its signatures name.
pub(crate) struct Api<'a> {
    source: &'a Source,
    /// Where each public name is defined, and what it needs.
    names: BTreeMap<String, (Place, Vec<String>)>,
    pub(crate) lines: BTreeSet<String>,
    /// Each function with the sections that its documentation lacks.
    pub(crate) unsaid: Vec<String>,
    /// Every type in a signature, with one item that names it.
    pub(crate) named: BTreeMap<Place, String>,
}

impl<'a> Api<'a> {
    pub(crate) fn of(source: &'a Source, name: &str) -> Self {
        let (names, lines, unsaid, named) = Default::default();
        let mut api = Self { source, names, lines, unsaid, named };
        api.collect(&vec![name.to_owned()], name, &[]);
        for (name, (place, needs)) in api.names.clone() {
            api.print(&name, &place, &needs);
        }
        api
    }

    /// Where the public types are defined.
    pub(crate) fn places(&self) -> BTreeSet<&Place> {
        self.names.values().map(|(place, _)| place).collect()
    }

    /// Collects all public names of the module `at`, known as `path`.
    fn collect(&mut self, at: &Place, path: &str, needs: &[String]) {
        let source = self.source;
        let module = &source.modules[at];
        let needs = [needs, &module.features].concat();
        for item in module.items.iter().filter(|item| is_public(item)) {
            let name = name_of(item).expect("public items have names");
            let place = [at.as_slice(), std::slice::from_ref(&name)].concat();
            self.names.insert(format!("{path}::{name}"), (place, needs.clone()));
        }
        for (name, more) in &module.exports {
            let place = source.resolve(at, std::slice::from_ref(name));
            let needs = [needs.as_slice(), more].concat();
            self.names.insert(format!("{path}::{name}"), (place, needs));
        }
        let children = source
            .modules
            .iter()
            .filter(|(place, _)| place.split_last().is_some_and(|(_, parent)| parent == at));
        for (place, _) in children.filter(|(_, child)| child.public) {
            let path = format!("{path}::{}", place[place.len() - 1]);
            let child = &source.modules[place];
            self.line(&path, "mod", &child.features);
            self.collect(place, &path, &[]);
        }
    }

    fn line(&mut self, name: &str, what: &str, needs: &[String]) {
        let mut line = format!("{name}: {what}");
        for need in needs.iter().collect::<BTreeSet<_>>() {
            line += &format!(" [{need}]");
        }
        self.lines.insert(line);
    }

    /// Records what `tokens` of the module `at` name.
    fn note<'t>(&mut self, at: &Place, name: &str, visit: impl FnOnce(&mut Paths<'t>)) {
        let mut paths = Paths(Vec::new(), std::marker::PhantomData);
        visit(&mut paths);
        for path in paths.0 {
            let place = self.source.resolve(at, &path);
            self.named.entry(place).or_insert_with(|| name.to_owned());
        }
    }

    fn print(&mut self, name: &str, place: &Place, needs: &[String]) {
        let source = self.source;
        let at = &place[..place.len() - 1].to_vec();
        let Some(item) = source.item(place) else {
            panic!("{name} is not found at {}", place.join("::"));
        };
        match item {
            Item::Struct(item) => {
                let shape =
                    if matches!(item.fields, Fields::Unit) { "unit struct" } else { "struct" };
                let generics = text(&item.generics);
                self.line(name, &format!("{shape}{generics}{}", marks(&item.attrs)), needs);
                self.derives(name, &item.attrs, needs);
                for (number, field) in item.fields.iter().enumerate() {
                    if !matches!(field.vis, Visibility::Public(_)) {
                        continue;
                    }
                    let of = field
                        .ident
                        .as_ref()
                        .map_or_else(|| number.to_string(), ToString::to_string);
                    self.line(
                        &format!("{name}::{of}"),
                        &format!("field {}", text(&field.ty)),
                        needs,
                    );
                    self.note(at, name, |paths| paths.visit_type(&field.ty));
                }
            }
            Item::Enum(item) => {
                self.line(
                    name,
                    &format!("enum{}{}", text(&item.generics), marks(&item.attrs)),
                    needs,
                );
                self.derives(name, &item.attrs, needs);
                for variant in &item.variants {
                    let fields = text(&variant.fields);
                    self.line(
                        &format!("{name}::{}", variant.ident),
                        &format!("variant{fields}"),
                        needs,
                    );
                    self.note(at, name, |paths| paths.visit_fields(&variant.fields));
                }
            }
            Item::Fn(item) => self.signature(at, name, &item.sig, &item.attrs, needs),
            Item::Const(item) => {
                self.line(name, &format!("const {}", text(&item.ty)), needs);
                self.note(at, name, |paths| paths.visit_type(&item.ty));
            }
            Item::Type(item) => self.line(name, &format!("type = {}", text(&item.ty)), needs),
            Item::Trait(item) => {
                self.line(name, &format!("trait{}", text(&item.generics)), needs);
                for member in &item.items {
                    let TraitItem::Fn(member) = member else { panic!("{name}: print this too") };
                    let of = format!("{name}::{}", member.sig.ident);
                    self.signature(at, &of, &member.sig, &member.attrs, needs);
                }
            }
            _ => panic!("{name}: print this kind of item too"),
        }
        for (at, module) in &source.modules {
            for item in &module.items {
                let Item::Impl(item) = item else { continue };
                let syn::Type::Path(of) = &*item.self_ty else { continue };
                if !is_test(&item.attrs) && source.resolve(at, &segments(&of.path)) == *place {
                    let needs = [needs, &module.features, &features_of(&item.attrs)].concat();
                    self.print_impl(at, name, item, &needs);
                }
            }
        }
    }

    fn print_impl(&mut self, at: &Place, name: &str, item: &ItemImpl, needs: &[String]) {
        if let Some((of, _)) = &item.trait_ {
            // Independent of the import: `Debug` and `fmt::Debug` are the same.
            let of_text = text(of.segments.last().expect("a trait has a name"));
            // Whether a type has a destructor is not part of the API.
            if of_text != "Drop" {
                let generics = text(&item.generics);
                self.line(name, &format!("impl{generics} {of_text}"), needs);
                self.note(at, name, |paths| paths.visit_path(of));
            }
            return;
        }
        for member in &item.items {
            match member {
                ImplItem::Fn(member) if matches!(member.vis, Visibility::Public(_)) => {
                    let of = format!("{name}::{}", member.sig.ident);
                    let needs = [needs, &features_of(&member.attrs)].concat();
                    self.signature(at, &of, &member.sig, &member.attrs, &needs);
                }
                ImplItem::Const(member) if matches!(member.vis, Visibility::Public(_)) => {
                    self.line(
                        &format!("{name}::{}", member.ident),
                        &format!("const {}", text(&member.ty)),
                        needs,
                    );
                }
                _ => {}
            }
        }
    }

    fn signature(
        &mut self,
        at: &Place,
        name: &str,
        signature: &syn::Signature,
        attributes: &[Attribute],
        needs: &[String],
    ) {
        let documentation = documentation(attributes);
        let returns = text(&signature.output);
        for (section, is_due) in [
            ("# Errors", returns.starts_with("-> Result<")),
            ("# Cancel safety", signature.asyncness.is_some()),
        ] {
            if is_due && !documentation.contains(section) {
                self.unsaid.push(format!("{name}: {section}"));
            }
        }
        // `pub async fn name<T>(..)`: the name is already at the beginning of the line.
        let called = format!("fn {}", signature.ident);
        let what = text(signature).replacen(&called, "fn", 1).replace("(mut self", "(self");
        self.line(name, &format!("{what}{}", marks(attributes)), needs);
        self.note(at, name, |paths| paths.visit_signature(signature));
    }

    fn derives(&mut self, name: &str, attributes: &[Attribute], needs: &[String]) {
        let on = |feature: &str| [needs, &[format!("feature {feature}")]].concat();
        for attribute in attributes {
            if let Some((feature, metas)) = on_feature(attribute) {
                metas.iter().for_each(|meta| self.derive(name, meta, &on(&feature)));
            } else {
                self.derive(name, &attribute.meta, needs);
            }
        }
    }

    fn derive(&mut self, name: &str, meta: &Meta, needs: &[String]) {
        let Meta::List(list) = meta else { return };
        if !list.path.is_ident("derive") {
            return;
        }
        let traits = list.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
        for of in traits.expect("derive(...)") {
            let of = &of.segments.last().expect("a trait has a name").ident;
            self.line(name, &format!("impl {of}"), needs);
        }
    }
}

/// The feature of `cfg_attr(feature = "x", ...)`, and the attributes that it adds.
fn on_feature(attribute: &Attribute) -> Option<(String, Vec<Meta>)> {
    let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg_attr"))?;
    let metas = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let mut metas = metas.expect("cfg_attr(...)").into_iter();
    let condition = text(&metas.next().expect("a condition"));
    let feature = condition.strip_prefix("feature = \"")?.strip_suffix('"')?.to_owned();
    Some((feature, metas.collect()))
}

struct Paths<'t>(Vec<Vec<String>>, std::marker::PhantomData<&'t ()>);

impl<'t> Visit<'t> for Paths<'t> {
    fn visit_path(&mut self, path: &'t syn::Path) {
        self.0.push(segments(path));
        visit::visit_path(self, path);
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn is_public(item: &Item) -> bool {
    let (visible, attributes) = match item {
        Item::Const(item) => (&item.vis, &item.attrs),
        Item::Enum(item) => (&item.vis, &item.attrs),
        Item::Fn(item) => (&item.vis, &item.attrs),
        Item::Static(item) => (&item.vis, &item.attrs),
        Item::Struct(item) => (&item.vis, &item.attrs),
        Item::Trait(item) => (&item.vis, &item.attrs),
        Item::Type(item) => (&item.vis, &item.attrs),
        Item::Union(item) => (&item.vis, &item.attrs),
        _ => return false,
    };
    matches!(visible, Visibility::Public(_)) && !is_test(attributes)
}

fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let lines = lines.map(|line| line.to_token_stream().to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// The attributes that matter to users.
fn marks(attributes: &[Attribute]) -> String {
    let mut marks = String::new();
    for mark in ["non_exhaustive", "must_use", "deprecated"] {
        if attributes.iter().any(|attribute| attribute.path().is_ident(mark)) {
            marks += &format!(" #[{mark}]");
        }
    }
    marks
}

/// Code as people write it, on one line.
fn text(code: &impl ToTokens) -> String {
    let mut text = code.to_token_stream().to_string().replace('\n', " ");
    let closer = [
        (" ,", ","),
        (" :", ":"),
        (":: ", "::"),
        (" ;", ";"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (",)", ")"),
        (",>", ">"),
        ("->(", "-> ("),
        (",(", ", ("),
        (":(", ": ("),
        ("where F", " where F"),
        ("  ", " "),
    ];
    for (from, to) in closer {
        while text.contains(from) && !to.contains(from) {
            text = text.replace(from, to);
        }
    }
    text.trim_end_matches(',').to_owned()
}
