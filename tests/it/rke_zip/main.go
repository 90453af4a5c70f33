// Writes a snapshot to standard output as RKE's tools do it: Go's archive/zip, deflate, absolute names, and the cluster's
// state next to the database.
package main

import (
	"archive/zip"
	"io"
	"os"
)

func add(archive *zip.Writer, path, name string) {
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	info, err := file.Stat()
	check(err)
	header, err := zip.FileInfoHeader(info)
	check(err)
	header.Name = name
	header.Method = zip.Deflate
	writer, err := archive.CreateHeader(header)
	check(err)
	_, err = io.Copy(writer, file)
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	database, state, name := os.Args[1], os.Args[2], os.Args[3]
	archive := zip.NewWriter(os.Stdout)
	add(archive, database, "/backup/"+name)
	add(archive, state, "/etc/kubernetes/"+name+".rkestate")
	check(archive.Close())
}
