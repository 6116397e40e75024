package apply

import (
	"cmp"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const (
	// maxSets is how many decoded sets a kind keeps: objects of one kind that are written by the same clients have few different ones.
	maxSets = 128
	// maxSetBytes is how long the encoding of a set that is kept may be.
	maxSetBytes = 4 << 10
)

// known is a decoded set of fields with its own encoding. Both are shared: nobody changes them.
type known struct {
	set    *fieldpath.Set
	fields *metav1.FieldsV1
}

// setCache remembers sets of fields, by their encoding or by what they come from. It is safe for concurrent use.
type setCache struct {
	mu sync.RWMutex
	by map[string]known
}

// get decodes fields. It is false for what is no set, and for one that was written under another schema and must be adapted.
func (c *setCache) get(fields *metav1.FieldsV1, f form) (known, bool) {
	raw := fields.GetRawBytes()
	c.mu.RLock()
	k, hit := c.by[string(raw)]
	c.mu.RUnlock()
	if hit {
		return k, true
	}
	k, err := decodeSet(fields, f)
	if err != nil {
		return known{}, false
	}
	if len(raw) <= maxSetBytes {
		c.keep(string(raw), k)
	}
	return k, true
}

// find looks a set up.
func (c *setCache) find(key []byte) (known, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, hit := c.by[string(key)]
	return k, hit
}

// keep remembers a set, in place of any other when there are many.
func (c *setCache) keep(raw string, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]known{}
	}
	for other := range c.by {
		if len(c.by) < maxSets {
			break
		}
		delete(c.by, other)
	}
	c.by[raw] = k
}

func decodeSet(fields *metav1.FieldsV1, f form) (known, error) {
	set := &fieldpath.Set{}
	if err := set.FromJSON(fields.GetRawReader()); err != nil {
		return known{}, fmt.Errorf("decode a set of fields: %w", err)
	}
	// Whether a set must be adapted depends on the schema alone, not on the value.
	adapted, err := typed.ReconcileFieldSetWithSchema(set, typed.AsTypedUnvalidated(nil, f.schema, f.ref))
	if err != nil {
		return known{}, err
	}
	if adapted != nil {
		return known{}, fmt.Errorf("the set of fields is of another schema")
	}
	encoded, err := encodeSet(set)
	return known{set: set, fields: encoded}, err
}

func encodeSet(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encode a set of fields: %w", err)
	}
	return metav1.NewFieldsV1(string(raw)), nil
}

// order sorts entries: applied ones first, then by time in seconds, manager, version and subresource.
func order(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(seconds(a.Time), seconds(b.Time)), cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}
