package codec

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/jsonwrite"
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

// Table writes the table of some objects (meta.k8s.io Table, in a's version and media type): the name, the kind's own columns, the age.
// Rows are put together from the objects' own bytes, so that a big table costs little more than its cells.
func Table(v *kind.Version, meta metav1.ListMeta, items []*stored.Object, a Accept, opts TableOptions) ([]byte, error) {
	rows := make([]stored.Bytes, len(items))
	size := 0
	for i, item := range items {
		b, err := rowObject(v, item, a, opts.Include)
		if err != nil {
			return nil, err
		}
		rows[i] = b
		size += len(b.Whole) + 32*(len(v.Columns)+2)
	}
	t, err := openTable(v, meta, a, opts, size)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if i > 0 {
			t = append(t, ',')
		}
		if t, err = appendRow(t, v, item.Hub(), rows[i].Whole, opts.Now); err != nil {
			return nil, err
		}
	}
	return closeTable(t, a)
}

// openTable writes all that stands before the rows, into a buffer with room for size more bytes.
func openTable(v *kind.Version, meta metav1.ListMeta, a Accept, opts TableOptions, size int) ([]byte, error) {
	list, err := jsonwrite.Marshal(&meta)
	if err != nil {
		return nil, fmt.Errorf("encode list metadata: %w", err)
	}
	defs := []byte("[]")
	if !opts.NoHeaders {
		if defs, err = jsonwrite.Marshal(columns(v)); err != nil {
			return nil, fmt.Errorf("encode the columns of %s: %w", v.Kind, err)
		}
	}
	t := make([]byte, 0, len(list)+len(defs)+size+128)
	t = append(t, `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	t = append(t, a.MetaVersion...)
	t = append(t, `","metadata":`...)
	t = append(t, list...)
	t = append(t, `,"columnDefinitions":`...)
	t = append(t, defs...)
	return append(t, `,"rows":[`...), nil
}

func closeTable(t []byte, a Accept) ([]byte, error) {
	t = append(t, "]}\n"...)
	switch a.Media {
	case YAML:
		return yaml.JSONToYAML(t)
	case CBOR:
		return toCBOR(t)
	}
	return t, nil
}

// rowObject is what a row carries beside its cells.
func rowObject(v *kind.Version, item *stored.Object, a Accept, include metav1.IncludeObjectPolicy) (stored.Bytes, error) {
	switch include {
	case metav1.IncludeNone:
		return stored.Bytes{Whole: []byte("null")}, nil
	case metav1.IncludeObject:
		return item.As(v, stored.JSON)
	case metav1.IncludeMetadata, "":
		return item.As(v, Accept{As: AsMetadata, MetaVersion: a.MetaVersion}.form())
	}
	return stored.Bytes{}, fmt.Errorf("unknown includeObject %q", include)
}

// shown gives a column's place: those for wide output stand behind the age.
func shown(v *kind.Version, wide bool) func(yield func(*kind.ErasedColumn) bool) {
	return func(yield func(*kind.ErasedColumn) bool) {
		for i := range v.Columns {
			if c := &v.Columns[i]; (c.Priority > 0 && !v.Ordered) == wide && !yield(c) {
				return
			}
		}
	}
}

func columns(v *kind.Version) []metav1.TableColumnDefinition {
	var out []metav1.TableColumnDefinition
	if !v.NoName {
		out = append(out, metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]})
	}
	for c := range shown(v, false) {
		out = append(out, c.TableColumnDefinition)
	}
	if !v.NoAge {
		out = append(out, metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]})
	}
	for c := range shown(v, true) {
		out = append(out, c.TableColumnDefinition)
	}
	return out
}

// appendRow writes one row: a cell for each of columns(v), in their order, and the object.
func appendRow(t []byte, v *kind.Version, hub kind.Object, object []byte, now time.Time) ([]byte, error) {
	t = append(t, `{"cells":[`...)
	start := len(t)
	var err error
	cell := func(value any) {
		if len(t) > start {
			t = append(t, ',')
		}
		var failed error
		if t, failed = appendCell(t, value); failed != nil {
			err = failed
		}
	}
	if !v.NoName {
		cell(hub.GetName())
	}
	for c := range shown(v, false) {
		cell(c.Value(hub, now))
	}
	if !v.NoAge {
		cell(Age(hub.GetCreationTimestamp().Time, now))
	}
	for c := range shown(v, true) {
		cell(c.Value(hub, now))
	}
	t = append(t, `],"object":`...)
	t = append(t, object...)
	return append(t, '}'), err
}

func appendCell(dst []byte, value any) ([]byte, error) {
	switch x := value.(type) {
	case string:
		return jsonwrite.AppendString(dst, x), nil
	case bool:
		return strconv.AppendBool(dst, x), nil
	case int64:
		return strconv.AppendInt(dst, x, 10), nil
	case int32:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int:
		return strconv.AppendInt(dst, int64(x), 10), nil
	}
	dst, err := jsonwrite.Append(dst, value)
	if err != nil {
		return dst, fmt.Errorf("encode a cell: %w", err)
	}
	return dst, nil
}

// Age is the time since an object was created, as tables show it.
func Age(created, now time.Time) string {
	if created.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(created))
}

// BookmarkTable is a bookmark in the form of a table: one row that shows nothing and carries the bookmark's metadata.
func BookmarkTable(v *kind.Version, bookmark metav1.Object, a Accept, opts TableOptions) ([]byte, error) {
	gvk := stored.PartialKind(a.MetaVersion)
	object, err := jsonwrite.Marshal(&metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: bookmark.GetResourceVersion(), Annotations: bookmark.GetAnnotations()},
	})
	if err != nil {
		return nil, fmt.Errorf("encode a bookmark: %w", err)
	}
	t, err := openTable(v, metav1.ListMeta{ResourceVersion: bookmark.GetResourceVersion()}, a, opts, len(object))
	if err != nil {
		return nil, err
	}
	t = append(t, `{"cells":[`...)
	for i := range columns(v) {
		if i > 0 {
			t = append(t, ',')
		}
		t = append(t, `""`...)
	}
	t = append(t, `],"object":`...)
	t = append(t, object...)
	return closeTable(append(t, '}'), a)
}
