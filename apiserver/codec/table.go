package codec

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// TableOptions says what a table shows.
type TableOptions struct {
	// Include is what each row carries beside its cells; empty means metadata.
	Include metav1.IncludeObjectPolicy
	// NoHeaders leaves out the column definitions, which a watch sends once.
	NoHeaders bool
	Now       time.Time
}

// TableKind is the kind of a table in a version of meta.k8s.io.
func TableKind(metaVersion string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "meta.k8s.io", Version: metaVersion, Kind: "Table"}
}

// Table makes the table of some objects: the name, the kind's own columns, the age.
func Table(v *kind.Version, meta metav1.ListMeta, items []*stored.Object, opts TableOptions) (*metav1.Table, error) {
	t := &metav1.Table{ListMeta: meta, Rows: make([]metav1.TableRow, 0, len(items)), ColumnDefinitions: []metav1.TableColumnDefinition{}}
	if !opts.NoHeaders {
		t.ColumnDefinitions = columns(v)
	}
	for _, item := range items {
		row, err := row(v, item, opts)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

func columns(v *kind.Version) []metav1.TableColumnDefinition {
	out := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: "Name of the object, unique within its namespace."}}
	var wide []metav1.TableColumnDefinition
	for _, c := range v.Columns {
		if c.Priority > 0 {
			wide = append(wide, c.TableColumnDefinition)
			continue
		}
		out = append(out, c.TableColumnDefinition)
	}
	if !v.NoAge {
		out = append(out, metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: "Time since the object was created."})
	}
	return append(out, wide...)
}

func row(v *kind.Version, item *stored.Object, opts TableOptions) (metav1.TableRow, error) {
	hub := item.Hub()
	cells := []any{hub.GetName()}
	var wide []any
	for _, c := range v.Columns {
		if c.Priority > 0 {
			wide = append(wide, c.Value(hub, opts.Now))
			continue
		}
		cells = append(cells, c.Value(hub, opts.Now))
	}
	if !v.NoAge {
		cells = append(cells, Age(hub.GetCreationTimestamp().Time, opts.Now))
	}
	r := metav1.TableRow{Cells: append(cells, wide...)}
	switch opts.Include {
	case metav1.IncludeNone:
		return r, nil
	case metav1.IncludeObject:
		b, err := item.As(v, stored.JSON)
		r.Object = runtime.RawExtension{Raw: b.Whole}
		return r, err
	case metav1.IncludeMetadata, "":
		b, err := item.As(v, stored.MetaJSON)
		r.Object = runtime.RawExtension{Raw: b.Whole}
		return r, err
	}
	return r, fmt.Errorf("unknown includeObject %q", opts.Include)
}

// Age is the time since an object was created, as tables show it.
func Age(created, now time.Time) string {
	if created.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(created))
}

// BookmarkTable is a bookmark in the form of a table: one row that shows nothing and carries the bookmark's metadata.
func BookmarkTable(v *kind.Version, bookmark metav1.Object, opts TableOptions) (*metav1.Table, error) {
	partial := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: stored.PartialKind.Kind, APIVersion: stored.PartialKind.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: bookmark.GetResourceVersion(), Annotations: bookmark.GetAnnotations()},
	}
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: bookmark.GetResourceVersion()}, ColumnDefinitions: []metav1.TableColumnDefinition{}}
	defs := columns(v)
	if !opts.NoHeaders {
		t.ColumnDefinitions = defs
	}
	cells := make([]any, len(defs))
	for i := range cells {
		cells[i] = ""
	}
	t.Rows = []metav1.TableRow{{Cells: cells, Object: runtime.RawExtension{Object: partial}}}
	return t, nil
}
