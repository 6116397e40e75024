package codec

import (
	"bytes"
	"fmt"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

const (
	// aliasGrowth and aliasAllowance bound what the aliases of a YAML document may make of it: so many times its size, beyond so many bytes.
	aliasGrowth    = 2
	aliasAllowance = 64 << 10
	// nodeCost is what an empty value costs in the JSON that the document becomes.
	nodeCost = 4
)

// CheckAliases refuses a YAML document whose aliases would make it grow: each stands for a copy of what it names, so that a few lines can stand for
// gigabytes. Whoever reads a client's YAML calls it first. Documents without aliases cost two searches for a byte.
func CheckAliases(doc []byte) error {
	if bytes.IndexByte(doc, '*') < 0 || bytes.IndexByte(doc, '&') < 0 {
		return nil
	}
	var root goyaml.Node
	if err := goyaml.Unmarshal(doc, &root); err != nil {
		return nil // its own decoder says what is wrong with it, before any alias is followed
	}
	m := measure{limit: int64(aliasGrowth*len(doc) + aliasAllowance), known: map[*goyaml.Node]int64{}}
	if n := m.of(&root); n > m.limit {
		return fmt.Errorf("yaml: the aliases of this document make it larger than %d bytes: write out what they stand for", m.limit)
	}
	return nil
}

// measure adds up what a document is when every alias is followed.
type measure struct {
	limit int64
	known map[*goyaml.Node]int64 // what anchors stand for
}

func (m *measure) of(n *goyaml.Node) int64 {
	if n.Kind == goyaml.AliasNode {
		n = n.Alias
	}
	if n == nil {
		return 0
	}
	if size, seen := m.known[n]; seen {
		return size
	}
	if n.Anchor != "" {
		m.known[n] = m.limit + 1 // one that contains itself has no end
	}
	size := int64(len(n.Value) + nodeCost)
	for _, c := range n.Content {
		size = min(size+m.of(c), m.limit+1)
	}
	if n.Anchor != "" {
		m.known[n] = size
	}
	return size
}
