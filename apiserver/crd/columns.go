package crd

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"

	"github.com/yare-project/yare/kind"
)

// path is a JSONPath that one goroutine at a time evaluates: the library keeps its state in it. It is parsed when first needed.
type path struct {
	text   string
	mu     sync.Mutex
	parsed *jsonpath.JSONPath
	bad    bool
}

// find returns the first value at the path, and its text if that is wanted.
func (p *path) find(data any, text bool) (value any, shown string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parsed == nil && !p.bad {
		parsed := jsonpath.New("custom resource").AllowMissingKeys(true)
		p.bad = parsed.Parse("{"+p.text+"}") != nil
		p.parsed = parsed
	}
	if p.bad {
		return nil, "", false
	}
	results, err := p.parsed.FindResults(data)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil, "", false
	}
	value = results[0][0].Interface()
	if text {
		var out bytes.Buffer
		if err := p.parsed.PrintResults(&out, []reflect.Value{reflect.ValueOf(value)}); err != nil {
			return nil, "", false
		}
		shown = out.String()
	}
	return value, shown, true
}

// age is the column of a version that declares none.
var age = apiextensionsv1.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
	Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}

func (f *form) columns() []kind.ErasedColumn {
	declared := f.declared.AdditionalPrinterColumns
	if len(declared) == 0 {
		declared = []apiextensionsv1.CustomResourceColumnDefinition{age}
	}
	out := make([]kind.ErasedColumn, 0, len(declared))
	for _, c := range declared {
		p := &path{text: c.JSONPath}
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		out = append(out, kind.ErasedColumn{
			TableColumnDefinition: metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority},
			Value: func(o kind.Object, now time.Time) any {
				u, err := f.of.to(object(o), f)
				if err != nil {
					return nil
				}
				value, shown, found := p.find(u.Object, c.Type == "string")
				if !found {
					return nil
				}
				return cell(c.Type, value, shown, now)
			},
		})
	}
	return out
}

// cell is a value in a column of some type; a value of another type shows as nothing.
func cell(typ string, value any, shown string, now time.Time) any {
	switch typ {
	case "string":
		return shown
	case "integer":
		switch x := value.(type) {
		case int64:
			return x
		case float64:
			return int64(x)
		}
	case "number":
		switch x := value.(type) {
		case int64:
			return float64(x)
		case float64:
			return x
		}
	case "boolean":
		if x, ok := value.(bool); ok {
			return x
		}
	case "date":
		if x, ok := value.(string); ok {
			at, err := time.Parse(time.RFC3339, x)
			if err != nil {
				return "<invalid>"
			}
			return duration.HumanDuration(now.Sub(at))
		}
	}
	return nil
}

// fields are what objects can be selected by beyond their names.
func (f *form) fields() map[string]func(kind.Object) string {
	if len(f.declared.SelectableFields) == 0 {
		return nil
	}
	out := map[string]func(kind.Object) string{}
	for _, s := range f.declared.SelectableFields {
		p := &path{text: s.JSONPath}
		out[strings.TrimPrefix(s.JSONPath, ".")] = func(o kind.Object) string {
			u, err := f.of.to(object(o), f)
			if err != nil {
				return ""
			}
			value, _, found := p.find(u.Object, false)
			if !found {
				return ""
			}
			if text, ok := value.(string); ok {
				return text
			}
			doc, err := json.Marshal(value) // a number or a boolean: the definition's validation allows no other
			if err != nil {
				return ""
			}
			return string(doc)
		}
	}
	return out
}
