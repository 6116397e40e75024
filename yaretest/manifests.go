package yaretest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifest is one document of a file.
type manifest struct {
	metav1.TypeMeta
	from string // for messages
	text []byte
}

// decode reads the document into obj. A field that obj does not have is an error: it would be lost without a word.
func (m manifest) decode(obj any) error {
	if err := yaml.UnmarshalStrict(m.text, obj); err != nil {
		return fmt.Errorf("%s: %w", m.from, err)
	}
	return nil
}

// read collects the documents of files, and of the files right in folders.
func read(paths []string) ([]manifest, error) {
	var out []manifest
	for _, path := range paths {
		files, err := filesAt(path)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			documents, err := readFile(f)
			if err != nil {
				return nil, err
			}
			out = append(out, documents...)
		}
	}
	return out, nil
}

func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	return out, nil
}

func readFile(path string) ([]manifest, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []manifest
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		m := manifest{from: path, text: text}
		if err := yaml.Unmarshal(text, &m.TypeMeta); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, m)
	}
}
