module github.com/yare-project/yare/node/runtime/programs

go 1.26.0
