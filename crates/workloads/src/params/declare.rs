//! The two macros that declare keys and words.

/// Declares the keys of a workload, or of a table of a plan: a struct of their values, and
/// [`Keys`](crate::params::Keys).
///
/// ```
/// # use benchmesh_workloads::{declare_keys, units::{Bytes, Span}};
/// declare_keys! {
///     #[derive(Debug)]
///     pub struct ExampleKeys {
///         /// Bytes of one call.
///         "bs" block: Bytes = "4k", min 1, max "1g";
///         /// Bytes of each file.
///         "file-size" file_size: Bytes = required;
///         /// How long it runs.
///         "runtime" runtime: Option<Span> = none("one pass over the files");
///         /// Fsync each file.
///         "fsync" fsync: bool = false, in ["create", "append"];
///         /// Time before the results count.
///         "ramp_time" ramp_time: Option<Span> = none("none"),
///             only "with `runtime`" if |keys, _scope| keys.runtime.is_some();
///     }
/// }
/// ```
///
/// After the default, in this order and each optional: `min`, `max` (values as a plan writes them); `in` (the modes in
/// which the key has an effect); `only "words" if |keys, scope| condition` (refused as "has an effect only ..." where
/// it does not hold); `because` (why the key has no effect elsewhere). `include name: Type;` after the keys takes over
/// the keys of another declaration.
#[macro_export]
macro_rules! declare_keys {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $struct:ident {
            $(
                $(#[doc = $doc:expr])+
                $name:literal $field:ident : $type:ty = $absent:tt $(($words:literal))?
                $(, min $min:literal)?
                $(, max $max:literal)?
                $(, in $modes:expr)?
                $(, only $only:literal if |$keys:pat_param, $scope:pat_param| $condition:expr)?
                $(, because $because:literal)?
                ;
            )*
            $(include $group:ident : $group_type:ty;)*
        }
    ) => {
        $(#[$meta])*
        $visibility struct $struct {
            $(pub $field: $type,)*
            $(pub $group: $group_type,)*
        }

        impl $struct {
            const OWN: &'static [$crate::params::Key] = &[
                $($crate::params::Key {
                    name: $name,
                    doc: &[$($doc),+],
                    absent: $crate::declare_keys!(@absent $absent $($words)?),
                    value: <$type as $crate::params::KeyValue>::value_type,
                    check: $crate::params::check_value::<$type>,
                    min: $crate::declare_keys!(@text $($min)?),
                    max: $crate::declare_keys!(@text $($max)?),
                    modes: $crate::declare_keys!(@modes $($modes)?),
                    only: $crate::declare_keys!(@words $($only)?),
                    because: $crate::declare_keys!(@words $($because)?),
                },)*
            ];
        }

        impl $crate::params::Keys for $struct {
            fn all() -> &'static [&'static $crate::params::Key] {
                static ALL: std::sync::LazyLock<Vec<&'static $crate::params::Key>> = std::sync::LazyLock::new(|| {
                    #[allow(unused_mut, reason = "there may be no group")]
                    let mut all: Vec<&'static $crate::params::Key> = $struct::OWN.iter().collect();
                    $(all.extend(<$group_type as $crate::params::Keys>::all());)*
                    all
                });
                ALL.as_slice()
            }

            fn read_from(reader: &mut $crate::params::Reader<'_>) -> Option<Self> {
                let mut own = Self::OWN.iter();
                // Reads all before unwrapping any, so that every error is reported.
                $(let $field = own.next().and_then(|key| reader.value::<$type>(key));)*
                $(let $group = <$group_type as $crate::params::Keys>::read_from(reader);)*
                Some(Self {
                    $($field: $field?,)*
                    $($group: $group?,)*
                })
            }

            #[allow(unused_variables, reason = "most keys have no condition")]
            fn condition_holds(&self, key: &str, scope: &$crate::params::ConditionInput<'_>) -> bool {
                $($(if key == $name {
                    let condition: fn(&Self, &$crate::params::ConditionInput<'_>) -> bool = |$keys, $scope| $condition;
                    return condition(self, scope);
                })?)*
                $(if <$group_type as $crate::params::Keys>::all().iter().any(|own| own.name == key) {
                    return $crate::params::Keys::condition_holds(&self.$group, key, scope);
                })*
                true
            }
        }
    };
    (@absent required) => { $crate::params::Absent::Required };
    (@absent none $words:literal) => { $crate::params::Absent::Described($words) };
    (@absent $default:literal) => { $crate::params::Absent::Default(stringify!($default)) };
    (@text) => { None };
    (@text $text:literal) => { Some(stringify!($text)) };
    (@modes) => { None };
    (@modes $modes:expr) => { Some(&$modes) };
    (@words) => { None };
    (@words $words:literal) => { Some($words) };
}

/// Declares an enum whose variants are words in a plan:
/// `declare_words! { pub enum Per { Worker = "worker", Task = "task" | "process" } }`.
#[macro_export]
macro_rules! declare_words {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal $(| $alias:literal)*,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $enum {
            $($(#[$variant_meta])* $variant,)+
        }

        #[allow(dead_code, reason = "a few enums are only read")]
        impl $enum {
            /// All words, in declaration order.
            pub const WORDS: &'static [&'static str] = &[$($word, $($alias,)*)+];

            /// The word in a plan.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// `None` for any other word.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word $(| $alias)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::params::KeyValue for $enum {
            fn value_type() -> $crate::params::ValueType {
                $crate::params::ValueType::Words(Self::WORDS)
            }

            fn read(value: &serde_json::Value) -> Result<Self, String> {
                value.as_str().and_then(Self::parse).ok_or_else(String::new)
            }
        }
    };
}
