package tools

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const module = "github.com/yare-project/yare"

// mayImport is the import table of docs/ARCHITECTURE.md: each top-level folder and the folders of this module that it may use. A
// folder may always use its own sub-packages.
var mayImport = map[string][]string{
	"cmd":         {"*"},
	"test":        {"*"},
	"examples":    {"*"},
	"tools":       {"*"},
	"yaretest":    {"*"},
	"bench":       {"internal"},
	"why":         {"scheduler", "internal"},
	"sim":         {"simulate", "controllers", "scheduler", "client", "kinds", "kind", "api", "internal"},
	"simulate":    {"controllers", "scheduler", "client", "kinds", "kind", "api", "internal"},
	"server":      {"sim", "autoscaler", "workflow", "controllers", "scheduler", "node", "proxy", "dns", "loop", "client", "apiserver", "kinds", "kind", "store", "api", "internal"},
	"autoscaler":  {"loop", "client", "api", "internal"},
	"workflow":    {"loop", "client", "api", "internal"},
	"controllers": {"loop", "client", "api", "internal"},
	"scheduler":   {"loop", "client", "api", "internal"},
	"node":        {"loop", "client", "api", "internal"},
	"proxy":       {"loop", "client", "api", "internal"},
	"dns":         {"loop", "client", "api", "internal"},
	"loop":        {"client", "internal"},
	"client":      {"api", "internal"},
	"apiserver":   {"kind", "store", "api", "internal"},
	"kinds":       {"kind", "api", "internal"},
	"kind":        {"api", "internal"},
	"store":       {"internal"},
	"api":         {},
	"internal":    {},
}

var badNames = []string{"util", "utils", "common", "helper", "helpers", "types", "structs", "misc", "pkg"}

// source is one parsed Go file of the module.
type source struct {
	path string // from the repository's root, with slashes
	file *ast.File
	set  *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }
func (s source) dir() string {
	return filepath.ToSlash(filepath.Dir(s.path))
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" || rel == "bin" || rel == "data" || nested == nil && rel != "." {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, source{filepath.ToSlash(rel), file, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImportsPointDownTheTable(t *testing.T) {
	for _, s := range sources(t) {
		top, _, _ := strings.Cut(s.path, "/")
		if top == s.path {
			t.Errorf("%s: no Go files in the repository's root", s.path)
			continue
		}
		allowed, known := mayImport[top]
		if !known {
			t.Errorf("%s: folder %q is not in the import table", s.path, top)
			continue
		}
		for _, spec := range s.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			rest, ours := strings.CutPrefix(path, module+"/")
			if !ours {
				continue
			}
			target, _, _ := strings.Cut(rest, "/")
			// An external test may use what stands beside it to drive the real thing.
			if target == top || slices.Contains(allowed, target) || slices.Contains(allowed, "*") || s.test() && strings.HasSuffix(s.file.Name.Name, "_test") {
				continue
			}
			t.Errorf("%s imports %s: %s may import only %v", s.path, path, top, allowed)
		}
	}
}

func TestEachPackageHasAContract(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		documented[s.dir()] = documented[s.dir()] || s.file.Doc != nil && len(s.file.Doc.Text()) > 20
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment; say what the package is for, what it guarantees and what it does not do", dir)
		}
	}
}

func TestPackagesAreNamedByDomain(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(badNames, filepath.Base(s.dir())) {
			t.Errorf("%s: name the package by what it does", s.dir())
		}
	}
}

func TestNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
				t.Errorf("%s: time.Sleep in a test: wait for an event, or turn the injected clock", s.set.Position(n.Pos()))
			}
			return true
		})
	}
}

func TestTheGateNamesNoKind(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.path, "apiserver/") || s.test() {
			continue
		}
		for _, spec := range s.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if path == "k8s.io/api/apps/v1" || path == "k8s.io/api/batch/v1" || path == "k8s.io/api/core/v1" && s.dir() == "apiserver" {
				t.Errorf("%s imports %s: the API server serves every kind through package kind and names none", s.path, path)
			}
		}
	}
}

func TestDependenciesAreExplained(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if !r.Indirect && !strings.Contains(string(doc), "`"+r.Mod.Path+"`") {
			t.Errorf("docs/dependencies.md does not say why %s is used", r.Mod.Path)
		}
	}
}

func TestMarkdownLinksLeadSomewhere(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			if err == nil {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, part := range strings.Split(string(text), "](")[1:] {
			link, _, ok := strings.Cut(part, ")")
			if !ok || strings.Contains(link, "://") || strings.HasPrefix(link, "#") {
				continue
			}
			link, _, _ = strings.Cut(link, "#")
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), link)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, link)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
